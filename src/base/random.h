// SPDX-License-Identifier: Apache-2.0
// Random names and tokens from the kernel's generator.
#pragma once

#include <cstddef>
#include <string>

namespace tugline::base {

/// `bytes` random bytes as 2 * bytes lower-case hexadecimal digits; fit for secrets. Thread-safe. Throws
/// Error{system}.
std::string random_hex(std::size_t bytes);

}  // namespace tugline::base

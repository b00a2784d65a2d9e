// SPDX-License-Identifier: Apache-2.0
// What every backend refuses, in the same words.
#pragma once

#include <cstdint>
#include <string>

#include "tugline/error.h"

namespace tugline::device {

/// A handle of another device of the kind. `owner`, `device`: "host:1".
[[noreturn]] void refuse_foreign(const char* what, const std::string& owner, const std::string& device);
/// A call that a capture does not allow, or any on a broken one.
[[noreturn]] void refuse_in_capture(std::string what_failed, const std::string& where, long native_code = 0);
/// For destructors, which cannot throw.
void report_bad_handle(const char* what, std::uintptr_t handle) noexcept;

}  // namespace tugline::device

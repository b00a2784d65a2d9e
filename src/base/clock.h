// SPDX-License-Identifier: Apache-2.0
// The one clock that all processes of a host agree on.
#pragma once

#include <cstdint>

namespace tugline::base {

/// CLOCK_MONOTONIC in nanoseconds: comparable between processes of one host, never set back. Thread-safe.
std::uint64_t monotonic_ns() noexcept;

}  // namespace tugline::base

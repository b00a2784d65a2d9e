// SPDX-License-Identifier: Apache-2.0
// Which Linux kernel features may be used.
#pragma once

#include <string_view>

namespace tugline::base {

/// The oldest Linux that tugline is made for.
inline constexpr int kOldestKernelMajor = 5;
inline constexpr int kOldestKernelMinor = 10;

/// True when version `release` ("6.1.0-13-amd64"), held down to `limit` ("5.10"; empty is no limit), is at
/// least major.minor. A text that is no version allows nothing.
bool version_at_least(std::string_view release, std::string_view limit, int major, int minor) noexcept;

/// True when the running kernel is at least major.minor and the setting `kernel` (TUGLINE_KERNEL=5.10) does
/// not ask to behave like an older one. Thread-safe.
bool kernel_at_least(int major, int minor);

}  // namespace tugline::base

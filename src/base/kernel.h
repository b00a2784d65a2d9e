// SPDX-License-Identifier: Apache-2.0
// Which Linux kernel features may be used.
#pragma once

namespace tugline::base {

/// True when the running kernel is at least major.minor and the setting `kernel` (TUGLINE_KERNEL=5.10) does
/// not ask to behave like an older one. Thread-safe.
bool kernel_at_least(int major, int minor);

}  // namespace tugline::base

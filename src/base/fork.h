// SPDX-License-Identifier: Apache-2.0
// Whether this process is the one in which something was made, or a forked child of it.
#pragma once

#include <atomic>
#include <cstdint>

namespace tugline::base {

namespace detail {
extern std::atomic<std::uint32_t> forks;
}

/// Differs in a process that was forked from what it was in its parent, without a system call: what keeps the
/// value from its making can compare. Counts from 1. Not seen: children made by a bare clone().
inline std::uint32_t fork_count() noexcept {
  return detail::forks.load(std::memory_order_relaxed);
}

/// A random number that no other process has, not 0; forked children and clones that share no memory get
/// their own. One load after the first call. Throws Error{out_of_memory} or Error{system}.
std::uint64_t process_identity();

}  // namespace tugline::base

// SPDX-License-Identifier: Apache-2.0
// Process-shared futexes: sleep until a word in shared memory changes.
#pragma once

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <span>

namespace tugline::base {

enum class WaitResult : std::uint8_t {
  woken,      ///< somebody called futex_wake, or a signal came: look at the word again
  changed,    ///< the word differed from `expected` before sleeping
  timed_out,  ///< the time has passed
};

/// A wait without limit.
inline constexpr std::chrono::nanoseconds kForever = std::chrono::nanoseconds::max();

/// Sleeps while `word` equals `expected`, at most `timeout` (relative, CLOCK_MONOTONIC; zero or less returns
/// at once). Wakes spuriously, so callers loop. `word` may lie in memory shared between processes, also in a
/// read-only mapping. Orders nothing: read the word again with acquire after it. Thread-safe. Throws
/// Error{system} when the kernel refuses the address.
WaitResult futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                      std::chrono::nanoseconds timeout);

/// A word, and the value at which it is slept on.
struct FutexWord {
  const std::atomic<std::uint32_t>* word;
  std::uint32_t expected;
};

/// Words of one wait that the kernel can watch at once.
inline constexpr std::size_t kMostFutexWords = 128;

/// Sleeps while every one of the words has its expected value, as futex_wait() does for one. Where the kernel
/// cannot watch several (before Linux 5.16, or refused by a filter) or there are more than kMostFutexWords, a
/// change of a later word may be seen only when the time has passed: let `timeout` be short enough for that.
/// At least one word.
WaitResult futex_wait_any(std::span<const FutexWord> words, std::chrono::nanoseconds timeout);

/// Wakes up to `count` sleepers of any process; change the word (release) first. Returns how many were woken.
/// Thread-safe, async-signal-safe.
int futex_wake(std::atomic<std::uint32_t>& word, int count = INT_MAX) noexcept;

}  // namespace tugline::base

// SPDX-License-Identifier: Apache-2.0
// The one clock that all processes of a host agree on, and the one by which a process waits.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace tugline::base {

/// CLOCK_MONOTONIC in nanoseconds: comparable between processes of one host, never set back. Thread-safe.
std::uint64_t monotonic_ns() noexcept;

/// Counts the time in which its reader ran: what passes while the process is stopped (Ctrl-Z, a debugger, a
/// frozen control group) does not end the waits in it. A step between two readings counts as kLongestStep at
/// most, so who waits reads it more often, and who does not wait may leave it. Not thread-safe.
class RunningClock {
 public:
  static constexpr std::uint64_t kLongestStep = 100'000'000;
  /// For how long a waiter sleeps between two readings at most.
  static constexpr std::uint64_t kLongestSleep = kLongestStep / 2;

  /// Begins with the time that it is first given.
  std::uint64_t read(std::uint64_t monotonic) noexcept {
    if (last_ == 0) last_ = monotonic;
    const auto step = monotonic - last_;
    last_ = monotonic;
    left_out_ += step - std::min(step, kLongestStep);
    return monotonic - left_out_;
  }

 private:
  std::uint64_t last_ = 0;
  std::uint64_t left_out_ = 0;
};

/// The calling thread's RunningClock in nanoseconds: means nothing to other threads.
std::uint64_t running_ns() noexcept;
/// The moment of running_ns() that is so far away; a year at most, so that "for ever" does not wrap.
std::uint64_t running_deadline(std::chrono::milliseconds time) noexcept;
/// For how long to sleep until then: less where running_ns() has to be read before, 0 when it has passed.
std::chrono::nanoseconds sleep_until(std::uint64_t deadline_ns) noexcept;

}  // namespace tugline::base

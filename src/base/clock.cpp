// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <ctime>

namespace tugline::base {

std::uint64_t monotonic_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

std::uint64_t running_ns() noexcept {
  thread_local RunningClock clock;
  return clock.read(monotonic_ns());
}

std::uint64_t running_deadline(std::chrono::milliseconds time) noexcept {
  constexpr std::chrono::milliseconds kYear{std::chrono::hours(24 * 365)};
  const std::chrono::nanoseconds bounded = std::clamp(time, std::chrono::milliseconds(0), kYear);
  return running_ns() + static_cast<std::uint64_t>(bounded.count());
}

std::chrono::nanoseconds sleep_until(std::uint64_t deadline_ns) noexcept {
  const auto now = running_ns();
  const auto left = deadline_ns > now ? deadline_ns - now : 0;
  return std::chrono::nanoseconds(std::min(left, RunningClock::kLongestSleep));
}

}  // namespace tugline::base

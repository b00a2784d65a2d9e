// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <gtest/gtest.h>

#include <ctime>

namespace {

TEST(Clock, LiesBetweenTwoReadingsOfTheSystemsMonotonicClock) {
  const auto read = [] {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
  };
  const auto before = read();
  const auto now = tugline::base::monotonic_ns();
  const auto after = read();
  EXPECT_LE(before, now);
  EXPECT_LE(now, after);
}

TEST(RunningClock, CountsSmallStepsWholeAndAStopAsALittle) {
  using tugline::base::RunningClock;
  constexpr std::uint64_t kHour = 3'600'000'000'000;
  RunningClock clock;
  EXPECT_EQ(clock.read(5 * kHour), 5 * kHour);
  std::uint64_t moment = 5 * kHour;
  for (int i = 0; i < 100; ++i) clock.read(moment += RunningClock::kLongestSleep);
  EXPECT_EQ(clock.read(moment), 5 * kHour + 100 * RunningClock::kLongestSleep);
  const auto before = clock.read(moment);
  EXPECT_EQ(clock.read(moment += kHour), before + RunningClock::kLongestStep);
  EXPECT_EQ(clock.read(moment += 7), before + RunningClock::kLongestStep + 7);
}

TEST(RunningClock, ADeadlineIsSleptForInPieces) {
  using namespace tugline::base;
  const auto longest = std::chrono::nanoseconds(RunningClock::kLongestSleep);
  EXPECT_EQ(sleep_until(running_deadline(std::chrono::hours(1))), longest);
  const auto soon = sleep_until(running_deadline(std::chrono::milliseconds(20)));
  EXPECT_LE(soon, std::chrono::milliseconds(20));
  EXPECT_EQ(sleep_until(running_ns()), std::chrono::nanoseconds(0));
  EXPECT_EQ(sleep_until(0), std::chrono::nanoseconds(0));
  EXPECT_EQ(sleep_until(running_deadline(std::chrono::milliseconds::max())), longest) << "no wrap";
}

}  // namespace

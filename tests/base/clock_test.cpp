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

}  // namespace

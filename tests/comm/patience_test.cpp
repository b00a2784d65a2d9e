// SPDX-License-Identifier: Apache-2.0
// What a long wait costs, counted in virtual time.
#include "comm/patience.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tugline::comm {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kSecond = 1'000'000'000;

struct Waited {
  int naps = 0;
  std::vector<std::uint64_t> reports;  ///< seconds after the beginning
};

/// Nothing comes from `began` to `end`; each nap lasts as long as it may.
Waited wait_through(Patience& patience, std::uint64_t began, std::uint64_t end) {
  Waited result;
  for (std::uint64_t now = began; now < end; now += patience.nap(now), ++result.naps)
    if (patience.report_is_due(now)) result.reports.push_back((now - began) / kSecond);
  return result;
}

TEST(Patience, WakesRarelyAfterTenMilliseconds) {
  Patience patience(base::Settings{}, true, 7);
  EXPECT_LE(wait_through(patience, 7, 7 + 10 * kMillisecond).naps, 20);
  const auto later = wait_through(patience, 7 + 10 * kMillisecond, 7 + 10 * kMillisecond + 60 * kSecond);
  EXPECT_LE(later.naps, 60 * 101) << "a wake-up costs some 20 us: 1 % of a core is 500 a second";
}

TEST(Patience, SpinsThroughAnOperationButNotOnACoreThatOthersNeed) {
  EXPECT_TRUE(Patience(base::Settings{}, true, 0).may_spin(kMillisecond - 1));
  EXPECT_FALSE(Patience(base::Settings{}, true, 0).may_spin(kMillisecond));
  EXPECT_FALSE(Patience(base::Settings{}, false, 0).may_spin(kMillisecond / 20));
  base::Settings never;
  never.spin_us = 0;
  EXPECT_FALSE(Patience(never, true, 0).may_spin(0));
  EXPECT_FALSE(Patience(never, false, 0).may_spin(0));
}

TEST(Patience, NoNapIsLongerThanHalfOfTheWaitOrTenMilliseconds) {
  const Patience patience(base::Settings{}, true, 0);
  for (std::uint64_t now = 1; now < 100 * kSecond; now *= 2)
    EXPECT_LE(patience.nap(now), std::clamp<std::uint64_t>(now / 2, 50'000, 10 * kMillisecond)) << now;
}

TEST(Patience, ReportsEverMoreRarelyUpToAMinute) {
  Patience patience(base::Settings{}, true, 0);
  EXPECT_THAT(wait_through(patience, 0, 610 * kSecond).reports,
              ::testing::ElementsAre(1, 2, 4, 8, 16, 32, 64, 124, 184, 244, 304, 364, 424, 484, 544, 604));
}

TEST(Patience, AReportIntervalAboveAMinuteIsKept) {
  base::Settings settings;
  settings.report_after = 100s;
  Patience patience(settings, true, 0);
  EXPECT_THAT(wait_through(patience, 0, 310 * kSecond).reports, ::testing::ElementsAre(100, 200, 300));
}

TEST(Patience, ReportsCanBeSwitchedOff) {
  base::Settings settings;
  settings.report_after = 0s;
  Patience patience(settings, true, 0);
  EXPECT_TRUE(wait_through(patience, 0, 100 * kSecond).reports.empty());
}

TEST(Patience, ProgressBeginsAnew) {
  base::Settings settings;
  settings.fail_after = 5s;
  Patience patience(settings, true, 0);
  EXPECT_FALSE(patience.is_over(5 * kSecond - 1));
  EXPECT_TRUE(patience.is_over(5 * kSecond));
  patience.moved(4 * kSecond);
  EXPECT_FALSE(patience.is_over(5 * kSecond));
  EXPECT_FALSE(patience.report_is_due(5 * kSecond - 1));
  EXPECT_TRUE(patience.report_is_due(5 * kSecond));
  EXPECT_TRUE(patience.may_spin(4 * kSecond));
}

}  // namespace
}  // namespace tugline::comm

// SPDX-License-Identifier: Apache-2.0
#include "base/kernel.h"

#include <gtest/gtest.h>

#include "base/settings.h"

namespace {

using tugline::base::version_at_least;

TEST(Kernel, ComparesNumbersNotTexts) {
  EXPECT_TRUE(version_at_least("6.1.0-13-amd64", "", 6, 1));
  EXPECT_FALSE(version_at_least("6.1.0-13-amd64", "", 6, 2));
  EXPECT_TRUE(version_at_least("5.10.0", "", 5, 9));
  EXPECT_FALSE(version_at_least("5.9.0", "", 5, 10));
}

TEST(Kernel, LimitHoldsDownButNeverUp) {
  EXPECT_FALSE(version_at_least("6.1.0", "5.10", 5, 14));
  EXPECT_TRUE(version_at_least("6.1.0", "5.10", 5, 10));
  EXPECT_FALSE(version_at_least("5.10.0", "6.1", 5, 14));
}

TEST(Kernel, WhatIsNoVersionAllowsNothing) {
  EXPECT_FALSE(version_at_least("new", "", 2, 6));
  EXPECT_FALSE(version_at_least("6", "", 2, 6));
  EXPECT_FALSE(version_at_least("", "", 2, 6));
}

TEST(Kernel, TheFloorHoldsHereAndTheSettingIsObeyed) {
  EXPECT_TRUE(tugline::base::kernel_at_least(5, 10));
  EXPECT_FALSE(tugline::base::kernel_at_least(999, 0));
  const bool held_down = tugline::base::settings().kernel == "5.10";
  EXPECT_TRUE(!held_down || !tugline::base::kernel_at_least(5, 11));
}

}  // namespace

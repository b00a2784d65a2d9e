// SPDX-License-Identifier: Apache-2.0
#include "sgd.h"

#include <gtest/gtest.h>

#include <vector>

namespace train_fashion {
namespace {

TEST(LearningRate, RisesToThePeakAndFallsTowardsZero) {
  const LearningRate rate(0.1F, 99);
  EXPECT_NEAR(rate.at(0), 0.1F * 0.05F * 0.05F, 1e-7F);
  EXPECT_NEAR(rate.at(19), 0.1F, 1e-6F);
  EXPECT_NEAR(rate.at(98), 0.1F * 0.01F / 0.8F, 1e-6F);
  for (std::uint64_t step = 0; step < 99; ++step) EXPECT_GT(rate.at(step), 0.0F);
}

TEST(Sgd, FollowsNesterovMomentumByHand) {
  Sgd sgd(2, {.momentum = 0.5F, .weight_decay = 0.25F});
  const std::vector<float> current{7.0F, 4.0F};
  const std::vector<float> gradient{9.0F, 1.0F};
  std::vector<float> next{-1.0F, -1.0F};
  sgd.update(1, 1, current, gradient, 0.5F, next);
  EXPECT_EQ(next[0], -1.0F) << "outside the range";
  EXPECT_EQ(next[1], 4.0F - 0.5F * (2.0F + 0.5F * 2.0F));  // slope 1 + 0.25 * 4 = 2, velocity 2
  sgd.update(1, 1, current, gradient, 0.5F, next);
  EXPECT_EQ(next[1], 4.0F - 0.5F * (2.0F + 0.5F * 2.0F)) << "not committed: the same step again";
  sgd.commit();
  sgd.update(1, 1, current, gradient, 0.5F, next);
  EXPECT_EQ(next[1], 4.0F - 0.5F * (2.0F + 0.5F * 3.0F));  // velocity 0.5 * 2 + 2 = 3
}

}  // namespace
}  // namespace train_fashion

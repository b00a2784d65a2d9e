// SPDX-License-Identifier: Apache-2.0
#include "sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace train_fashion {
namespace {

TEST(Shares, CoverTheBatchInOrderAndDifferByOneAtMost) {
  for (int batch : {1, 2, 7, 96, 256}) {
    for (int size = 1; size <= 9; ++size) {
      int next = 0;
      int smallest = batch;
      int largest = 0;
      for (int rank = 0; rank < size; ++rank) {
        const Share share = share_of(batch, rank, size);
        ASSERT_EQ(share.begin, next) << batch << " images, rank " << rank << " of " << size;
        next = share.end;
        smallest = std::min(smallest, share.count());
        largest = std::max(largest, share.count());
      }
      ASSERT_EQ(next, batch);
      ASSERT_LE(largest - smallest, 1);
    }
  }
}

TEST(Sampler, AnEpochUsesEveryImageOnce) {
  constexpr int kImages = 103;
  Sampler sampler(1, kImages, 10);
  ASSERT_EQ(sampler.steps_per_epoch(), 11U);
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int> uses(kImages);
    for (std::uint64_t step = 0; step < 11; ++step) {
      const auto batch = sampler.batch(epoch * 11 + step);
      ASSERT_EQ(batch.size(), step == 10 ? 3U : 10U);
      for (auto image : batch) ++uses.at(image);
    }
    EXPECT_EQ(std::count(uses.begin(), uses.end(), 1), kImages);
  }
}

TEST(Sampler, ABatchDependsOnSeedAndStepAlone) {
  Sampler walked(7, 1000, 64);
  Sampler jumped(7, 1000, 64);
  Sampler other(8, 1000, 64);
  for (std::uint64_t step = 0; step < 40; ++step) walked.batch(step);
  const auto expected = walked.batch(40);
  const auto got = jumped.batch(40);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), got.begin(), got.end()));
  const auto different = other.batch(40);
  EXPECT_FALSE(std::equal(expected.begin(), expected.end(), different.begin(), different.end()));
}

}  // namespace
}  // namespace train_fashion

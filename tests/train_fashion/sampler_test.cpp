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

TEST(MicroBatches, CoverTheShareAndHaveTheirSizeAtMost) {
  for (int batch : {1, 2, 7, 96, 256, 60'000}) {
    for (int micro_batch : {1, 3, 64, 100, 60'000}) {
      for (int size : {1, 2, 3, 4, 5, 8, 256}) {
        const int per_rank = micro_batches_per_rank(batch, micro_batch, size);
        ASSERT_GE(per_rank, 1);
        for (int rank = 0; rank < size; ++rank) {
          const Share share = share_of(batch, rank, size);
          int next = share.begin;
          for (int i = 0; i < per_rank; ++i) {
            const Share part = micro_batch_of(batch, rank, size, per_rank, i);
            ASSERT_EQ(part.begin, next)
                << batch << " by " << micro_batch << ", rank " << rank << " of " << size;
            ASSERT_LE(part.count(), micro_batch);
            next = part.end;
          }
          ASSERT_EQ(next, share.end);
        }
      }
    }
  }
}

// One rank adds up what N ranks reduce only if it cuts where they do, in an epoch's smaller last batch, too.
TEST(MicroBatches, OneRankWorksThroughTheSharesOfManyInTheirOrder) {
  for (int full_batch : {7, 50, 256, 257}) {
    for (int size = 1; size <= 9; ++size) {
      if (size > full_batch) continue;
      const int micro_batch = (full_batch + size - 1) / size;
      if (micro_batches_per_rank(full_batch, micro_batch, 1) != size) continue;  // 7 images, 5 ranks
      ASSERT_EQ(micro_batches_per_rank(full_batch, micro_batch, size), 1);
      for (int batch : {full_batch, full_batch / 3, 1}) {
        for (int rank = 0; rank < size; ++rank) {
          const Share one = micro_batch_of(batch, 0, 1, size, rank);
          const Share many = micro_batch_of(batch, rank, size, 1, 0);
          ASSERT_EQ(one.begin, many.begin) << batch << " images, rank " << rank << " of " << size;
          ASSERT_EQ(one.end, many.end) << batch << " images, rank " << rank << " of " << size;
        }
      }
    }
  }
}

TEST(MicroBatches, FourRanksOfTheDefaultBatchHaveOneEach) {
  EXPECT_EQ(micro_batches_per_rank(256, 64, 4), 1);
  EXPECT_EQ(micro_batches_per_rank(256, 64, 1), 4);
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

// SPDX-License-Identifier: Apache-2.0
// Who withdraws its buffers waits for those who are at them, and for nobody else.
#include "comm/visit.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "base/shared_memory.h"

namespace tugline::comm {
namespace {

constexpr std::uint32_t kRanks = 3;

class Visit : public ::testing::Test {
 protected:
  Epoch epoch_of(std::uint32_t rank) const {
    return {nullptr,
            memory::SegmentReference(nullptr, 0),
            Bank(base::Mapping(memory_.get(), layout_.total, base::Access::read_write), layout_),
            EpochId{"0", 0},
            rank,
            {0, 1, 2}};
  }

  /// Whether rank 0's withdrawal from operation 7 has returned while `meanwhile` ran.
  template <class Meanwhile>
  bool returns_before(std::atomic<bool>& running, Meanwhile meanwhile) {
    std::atomic<bool> returned{false};
    std::atomic<int> looks{0};
    std::thread owner([&] {
      withdraw_buffers(owner_, 7, {}, [&](std::uint32_t) {
        ++looks;
        return running.load();
      });
      returned = true;
    });
    while (!returned && looks < 3) std::this_thread::yield();
    const bool early = returned;
    meanwhile();
    owner.join();
    return early;
  }

  const BankLayout layout_ = BankLayout::make(kRanks, 64 << 10, 8 << 10);
  const base::UniqueFd memory_ = base::create_sealed_memfd("visit_test", layout_.total);
  const Epoch owner_ = epoch_of(0);
  const Epoch visitor_ = epoch_of(1);
  const Epoch late_ = epoch_of(2);
  std::array<Buffers, kRanks> buffers_{};
  std::atomic<bool> running_{true};
};

TEST_F(Visit, AVisitorIsWaitedFor) {
  Visits visitor(visitor_, 7, buffers_);
  ASSERT_TRUE(visitor.begin());
  EXPECT_FALSE(returns_before(running_, [&] { visitor.end(); }));
}

TEST_F(Visit, AVisitorThatHasDiedIsWaitedForUntilItsProcessRunsNoMore) {
  Visits visitor(visitor_, 7, buffers_);
  ASSERT_TRUE(visitor.begin());
  EXPECT_FALSE(returns_before(running_, [&] { running_ = false; }));
}

TEST_F(Visit, NobodyIsWaitedForWhoIsInAnotherOperation) {
  Visits visitor(visitor_, 6, buffers_);
  ASSERT_TRUE(visitor.begin());
  EXPECT_TRUE(returns_before(running_, [] {}));
}

TEST_F(Visit, WhoComesLaterKeepsOff) {
  EXPECT_TRUE(returns_before(running_, [] {}));
  Visits late(late_, 7, buffers_);
  EXPECT_FALSE(late.begin());
  EXPECT_EQ(late.withdrawn(), 0);
  Visits next(late_, 8, buffers_);
  EXPECT_TRUE(next.begin());
}

}  // namespace
}  // namespace tugline::comm

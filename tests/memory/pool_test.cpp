// SPDX-License-Identifier: Apache-2.0
// Pools in stream order, and what is done when memory is short.
#include "memory/pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "../broker/expect_error.h"
#include "../broker/support.h"
#include "device/registry.h"
#include "memory/allocation.h"
#include "memory/member_memory.h"

namespace tugline::memory {
namespace {

using broker::testing::eventually;
using broker::testing::ThreadedServer;

constexpr std::size_t kSlab = HostPool::kSlabBytes;

class PoolTest : public testing::Test {
 protected:
  static broker::ServerOptions options() {
    broker::ServerOptions options;
    options.limits = {.member_bytes = 4 * kSlab};
    return options;
  }
  /// Work that keeps a stream busy until it is let go.
  class Hold {
   public:
    explicit Hold(const Stream& stream) {
      stream.launch([gate = gate_.get_future().share()]() -> Status {
        gate.wait();
        return {};
      });
    }
    ~Hold() { release(); }
    void release() {
      if (!std::exchange(released_, true)) gate_.set_value();
    }

   private:
    std::promise<void> gate_;
    bool released_ = false;
  };

  ThreadedServer server_{options()};
  std::shared_ptr<broker::Client> client_ = server_.join(0, 2);
  Device& device_ = device::host_device(0);
  Stream one_{device_};
  Stream two_{device_};
  std::shared_ptr<HostPool> pool_ = HostPool::make(client_);
};

TEST_F(PoolTest, AllocationsAreAlignedApartAndKnownAsWindows) {
  std::vector<char*> all;
  for (const std::size_t bytes : {1, 255, 256, 257, 5000}) {
    auto* address = static_cast<char*>(pool_->allocate(bytes, one_));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(address) % HostPool::kAlignment, 0u);
    std::memset(address, static_cast<int>(all.size()), bytes);
    EXPECT_TRUE(MemberMemory::of(client_)->windows().find(address, bytes));
    all.push_back(address);
  }
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(*all[i], static_cast<char>(i));
  const auto statistics = pool_->statistics();
  EXPECT_EQ(statistics.used_bytes, 256u * (1 + 1 + 1 + 2 + 20));
  EXPECT_EQ(statistics.reserved_bytes, kSlab);
  EXPECT_EQ(statistics.growths, 1u);
}

TEST_F(PoolTest, WhatAStreamFreesItsLaterAllocationsGetAtOnceAndOthersWhenItsWorkIsDone) {
  Hold busy(one_);
  void* address = pool_->allocate(kSlab, one_);
  pool_->deallocate(address, one_);
  EXPECT_EQ(pool_->allocate(kSlab, one_), address) << "though the work before is not done";
  pool_->deallocate(address, one_);
  void* other = pool_->allocate(kSlab, two_);
  EXPECT_NE(other, address);
  pool_->deallocate(other, two_);
  busy.release();
  one_.sync();
  pool_->allocate(kSlab, two_);
  pool_->allocate(kSlab, two_);
  const auto statistics = pool_->statistics();
  EXPECT_EQ(statistics.growths, 2u) << "the first stream's memory is anybody's now";
  EXPECT_EQ(statistics.reuses, 3u);
  EXPECT_EQ(statistics.stream_waits, 0u);
}

TEST_F(PoolTest, NeighboursBecomeOneAlsoWhileTheirStreamIsBusy) {
  Hold busy(one_);
  std::vector<void*> parts;
  for (int i = 0; i < 4; ++i) parts.push_back(pool_->allocate(kSlab / 4, one_));
  for (const int i : {2, 0, 3, 1}) pool_->deallocate(parts[static_cast<std::size_t>(i)], one_);
  EXPECT_EQ(pool_->allocate(kSlab, one_), parts[0]);
  EXPECT_EQ(pool_->statistics().growths, 1u);
}

TEST_F(PoolTest, AJointBlockIsNobodyElsesBeforeTheLaterPartIsDone) {
  void* first = pool_->allocate(kSlab / 2, one_);
  void* second = pool_->allocate(kSlab / 2, one_);
  Hold early(one_);
  pool_->deallocate(second, one_);
  Hold late(one_);
  pool_->deallocate(first, one_);
  void* whole = pool_->allocate(kSlab, one_);  // joins them
  EXPECT_EQ(whole, first);
  pool_->deallocate(whole, one_);
  early.release();
  EXPECT_NE(pool_->allocate(kSlab, two_), whole);
}

TEST_F(PoolTest, HighWaterMarksStay) {
  void* address = pool_->allocate(3 * 256, one_);
  pool_->deallocate(address, one_);
  pool_->allocate(256, one_);
  EXPECT_EQ(pool_->statistics().used_bytes, 256u);
  EXPECT_EQ(pool_->statistics().used_high_bytes, 3 * 256u);
}

TEST_F(PoolTest, TrimGivesBackWhatNobodyUses) {
  void* a = pool_->allocate(kSlab, one_);
  void* b = pool_->allocate(kSlab, one_);
  EXPECT_EQ(pool_->trim_to(0), 0u);
  pool_->deallocate(a, one_);
  EXPECT_EQ(pool_->trim_to(2 * kSlab), 0u) << "as much may stay";
  EXPECT_EQ(pool_->trim_to(0), kSlab);
  EXPECT_EQ(pool_->statistics().reserved_bytes, kSlab);
  EXPECT_EQ(pool_->statistics().reserved_high_bytes, 2 * kSlab);
  EXPECT_EQ(client_->usage(client_->member()).buffer_bytes, kSlab);
  {
    Hold busy(one_);
    pool_->deallocate(b, one_);
    EXPECT_EQ(pool_->trim_to(0), 0u) << "its stream still works with it";
  }
  one_.sync();
  EXPECT_EQ(pool_->trim_to(0), kSlab);
}

TEST_F(PoolTest, BuffersFreeThemselvesOnTheirStream) {
  float* address = nullptr;
  {
    auto buffer = pool_->allocate_buffer<float>(100, one_);
    address = buffer.data();
    buffer.span()[99] = 1;
    PoolBuffer<float> moved(std::move(buffer));
    EXPECT_EQ(moved.data(), address);
    moved = pool_->allocate_buffer<float>(50, one_);
    EXPECT_EQ(pool_->statistics().used_bytes, 256u);
  }
  EXPECT_EQ(pool_->statistics().used_bytes, 0u);
  const auto kept = pool_->allocate_buffer<float>(100, one_);
  pool_.reset();
  kept.span()[0] = 1;  // the buffer keeps its pool
}

TEST_F(PoolTest, WrongUseIsRefused) {
  EXPECT_ERROR(pool_->allocate(0, one_), ErrorCode::invalid_argument, "0 bytes");
  int local = 0;
  EXPECT_ERROR(pool_->deallocate(&local, one_), ErrorCode::invalid_argument, "in use");
  auto* address = static_cast<char*>(pool_->allocate(1024, one_));
  EXPECT_ERROR(pool_->deallocate(address + 256, one_), ErrorCode::invalid_argument, "in use");
  pool_->deallocate(address, one_);
  EXPECT_ERROR(pool_->deallocate(address, one_), ErrorCode::invalid_argument, "in use");
  one_.begin_capture();
  EXPECT_ERROR(pool_->allocate(1, one_), ErrorCode::invalid_usage, "capturing");
  (void)one_.end_capture();
}

TEST_F(PoolTest, NearTheLimitItAsksForNoMoreThanItNeeds) {
  const auto most = allocate(client_, 4 * kSlab - 8192);
  EXPECT_NE(pool_->allocate(5000, one_), nullptr);
  EXPECT_EQ(pool_->statistics().reserved_bytes, 8192u);
}

TEST_F(PoolTest, AtTheLimitAStreamWaitsForWhatAnotherFrees) {
  const auto most = allocate(client_, 3 * kSlab);
  Hold busy(one_);
  void* address = pool_->allocate(kSlab, one_);
  pool_->deallocate(address, one_);
  EXPECT_EQ(pool_->allocate(kSlab, two_), address);
  EXPECT_EQ(pool_->statistics().stream_waits, 1u);
  bool ran = false;
  two_.launch([&]() -> Status {
    ran = true;
    return {};
  });
  EXPECT_FALSE(two_.is_done()) << "behind the first stream's work";
  busy.release();
  two_.sync();
  EXPECT_TRUE(ran);
}

TEST_F(PoolTest, WhenNothingHelpsTheErrorNamesAskedUsedAndLimit) {
  const auto most = allocate(client_, 3 * kSlab);
  void* address = pool_->allocate(kSlab, one_);
  EXPECT_ERROR(pool_->allocate(300, two_), ErrorCode::out_of_memory,
               "300 bytes of a pool were asked, 8388608 of its 8388608 are in use");
  EXPECT_ERROR(pool_->allocate(300, two_), ErrorCode::out_of_memory, "a limit of 33554432");
  pool_->deallocate(address, one_);
  EXPECT_EQ(pool_->allocate(300, two_), address) << "and works on";
}

TEST_F(PoolTest, ABufferThatFindsNoRoomGetsWhatThePoolDoesNotUse) {
  void* a = pool_->allocate(kSlab, one_);
  void* b = pool_->allocate(kSlab, one_);
  pool_->deallocate(a, one_);
  const auto buffer = allocate(client_, 3 * kSlab);
  EXPECT_EQ(buffer->bytes(), 3 * kSlab);
  EXPECT_EQ(pool_->statistics().reserved_bytes, kSlab);
  EXPECT_ERROR(
      allocate(client_, 1), ErrorCode::out_of_memory,
      "1 bytes were asked by rank 0, which has 33554432 (a limit of 33554432) in a job that has 33554432 "
      "(no limit)");
  std::memset(b, 1, kSlab);
}

TEST_F(PoolTest, ThreadsAllocateAndFreeWithoutSharingMemory) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      Stream stream(device_);
      for (int round = 0; round < 300; ++round) {
        const std::size_t bytes = 256 + static_cast<std::size_t>((round * 7919 + i * 104729) % 100'000);
        auto* address = static_cast<char*>(pool_->allocate(bytes, stream));
        stream.ref().fill(address, static_cast<std::uint8_t>(i), bytes);
        stream.launch([&wrong, address, bytes, i]() -> Status {
          if (address[0] != i || address[bytes / 2] != i || address[bytes - 1] != i) ++wrong;
          return {};
        });
        pool_->deallocate(address, stream);
      }
      stream.sync();
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(pool_->statistics().used_bytes, 0u);
  pool_->trim_to(0);
  EXPECT_EQ(pool_->statistics().reserved_bytes, 0u);
}

}  // namespace
}  // namespace tugline::memory

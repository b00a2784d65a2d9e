// SPDX-License-Identifier: Apache-2.0
// Collectives between buffers that all ranks can reach: over the real broker, with ranks as threads that are
// members of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../broker/support.h"
#include "device/registry.h"
#include "local_job.h"
#include "memory/allocation.h"

namespace tugline::comm::test {
namespace {

using ::testing::HasSubstr;

struct Rank {
  std::shared_ptr<broker::Client> client;
  std::shared_ptr<CommunicatorState> state;
  Communicator comm;
  int rank;

  /// Memory that the others can map; `offset` elements into a segment.
  template <class T>
  std::span<T> allocate(std::size_t count, std::size_t offset = 0) {
    kept.push_back(memory::allocate(client, (count + offset) * sizeof(T) + 1));
    return {static_cast<T*>(kept.back()->data()) + offset, count};
  }
  std::vector<std::shared_ptr<memory::SharedAllocation>> kept;
};

void run(int ranks, const std::function<void(Rank&)>& body) {
  broker::testing::ThreadedServer server;
  const auto devices = device::host_devices(ranks);
  std::mutex mutex;
  std::string problem;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        auto client = server.join(rank, ranks);
        CommunicatorState::Identity identity;
        identity.name = "world";
        identity.rank = static_cast<std::uint32_t>(rank);
        identity.size = static_cast<std::uint32_t>(ranks);
        auto state = CommunicatorState::create(client, *devices[static_cast<std::size_t>(rank)], identity);
        Rank self{client, state, Communicator(state), rank, {}};
        body(self);
        self.comm.barrier();
      } catch (const std::exception& error) {
        std::lock_guard lock(mutex);
        problem += "rank " + std::to_string(rank) + ": " + error.what() + "\n";
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(problem, "");
}

std::int32_t value(int rank, std::size_t index, int salt) {
  return static_cast<std::int32_t>(index * 7 + static_cast<std::size_t>(rank) * 1000003 +
                                   static_cast<std::size_t>(salt) * 31);
}
void fill(std::span<std::int32_t> data, int rank, int salt) {
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = value(rank, i, salt);
}
std::int32_t total(int ranks, std::size_t index, int salt) {
  std::int32_t sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += value(rank, index, salt);
  return sum;
}

struct Case {
  int ranks;
  std::size_t count;
  std::size_t offset;
};

class Direct : public ::testing::TestWithParam<Case> {};

TEST_P(Direct, EveryCollectiveIsRightAndCopiesNothing) {
  const auto [ranks, count, offset] = GetParam();
  run(ranks, [ranks = ranks, count = count, offset = offset](Rank& self) {
    const auto n = static_cast<std::size_t>(ranks);
    const int root = ranks - 1;
    auto small = self.allocate<std::int32_t>(count, offset);
    auto result = self.allocate<std::int32_t>(count, offset + 1);
    auto large = self.allocate<std::int32_t>(count * n, offset);
    auto all = self.allocate<std::int32_t>(count * n, offset + 3);
    const auto own = static_cast<std::size_t>(self.rank) * count;
    std::uint64_t expected = 0;
    const auto check = [&](const char* what, bool right) {
      EXPECT_TRUE(right) << what << " at rank " << self.rank;
      EXPECT_EQ(self.state->direct_operations(), ++expected) << what;
    };
    const auto type = DataType::i32;
    for (int salt = 0; salt < 3; ++salt) {
      fill(small, self.rank, salt);
      self.comm.all_reduce(small.data(), result.data(), count, type, ReduceOp::sum);
      bool right = true;
      for (std::size_t i = 0; i < count; ++i) right = right && result[i] == total(ranks, i, salt);
      check("all_reduce", right);

      self.comm.all_reduce(small.data(), small.data(), count, type, ReduceOp::sum);
      check("all_reduce in place", std::memcmp(small.data(), result.data(), count * 4) == 0);

      fill(large, self.rank, salt);
      self.comm.reduce_scatter(large.data(), result.data(), count, type, ReduceOp::sum);
      right = true;
      for (std::size_t i = 0; i < count; ++i) right = right && result[i] == total(ranks, own + i, salt);
      check("reduce_scatter", right);
      self.comm.reduce_scatter(large.data(), large.data() + own, count, type, ReduceOp::sum);
      check("reduce_scatter in place", std::memcmp(large.data() + own, result.data(), count * 4) == 0);

      fill(small, self.rank, salt);
      self.comm.all_gather(small.data(), all.data(), count, type);
      right = true;
      for (int rank = 0; rank < ranks; ++rank)
        for (std::size_t i = 0; i < count; ++i)
          right = right && all[static_cast<std::size_t>(rank) * count + i] == value(rank, i, salt);
      check("all_gather", right);

      fill(large, self.rank, salt);
      self.comm.all_to_all(large.data(), all.data(), count, type);
      right = true;
      for (int rank = 0; rank < ranks; ++rank)
        for (std::size_t i = 0; i < count; ++i)
          right = right && all[static_cast<std::size_t>(rank) * count + i] == value(rank, own + i, salt);
      check("all_to_all", right);

      // Only the root's input is reached; the others may receive anywhere.
      std::vector<std::int32_t> anywhere(count);
      fill(small, self.rank, salt);
      self.comm.broadcast(small.data(), anywhere.data(), count, type, root);
      right = true;
      for (std::size_t i = 0; i < count; ++i) right = right && anywhere[i] == value(root, i, salt);
      check("broadcast", right);

      self.comm.reduce(small.data(), result.data(), count, type, ReduceOp::max, root);
      right = true;
      for (std::size_t i = 0; self.rank == root && i < count; ++i) {
        std::int32_t most = value(0, i, salt);
        for (int rank = 1; rank < ranks; ++rank) most = std::max(most, value(rank, i, salt));
        right = right && result[i] == most;
      }
      check("reduce", right);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, Direct,
                         ::testing::Values(Case{2, 1024, 0}, Case{2, 100'003, 5}, Case{3, 50'001, 1},
                                           Case{5, 3001, 0}, Case{7, 1025, 2}));

TEST(DirectOffer, OnePrivateBufferSendsAllThroughScratch) {
  for (const bool in_place : {false, true})
    run(3, [in_place](Rank& self) {
      constexpr std::size_t kCount = 20'000;
      auto shared = self.allocate<std::int32_t>(kCount);
      auto result = self.allocate<std::int32_t>(kCount);
      std::vector<std::int32_t> own(kCount);
      for (int round = 0; round < 6; ++round) {
        // Another rank each time, and in every third round nobody.
        const bool is_private = round % 3 != 2 && self.rank == round % 3;
        std::span<std::int32_t> input = is_private ? std::span<std::int32_t>(own) : shared;
        fill(input, self.rank, round);
        auto output = in_place ? input : result;
        self.comm.all_reduce(input.data(), output.data(), kCount, DataType::i32, ReduceOp::sum);
        for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(output[i], total(3, i, round));
      }
      EXPECT_EQ(self.state->direct_operations(), 2u);
    });
}

// Others would read what this rank has not multiplied yet.
TEST(DirectOffer, PreMultipliedSumsGoThroughScratch) {
  run(3, [](Rank& self) {
    auto data = self.allocate<std::int32_t>(5000);
    fill(data, self.rank, 0);
    self.comm.all_reduce(data.data(), data.data(), 5000, DataType::i32,
                         Reduction::pre_mul_sum(self.rank + 1));
    std::int32_t want = 0;
    for (int rank = 0; rank < 3; ++rank) want += value(rank, 4999, 0) * (rank + 1);
    EXPECT_EQ(data[4999], want);
    EXPECT_EQ(self.state->direct_operations(), 0u);
  });
}

// Memory that was freed is not reached again: its place may be that of a new buffer.
TEST(DirectOffer, BuffersComeAndGo) {
  run(2, [](Rank& self) {
    for (int round = 0; round < 50; ++round) {
      const std::size_t count = 2000 + static_cast<std::size_t>(round) * 100;
      auto data = self.allocate<std::int32_t>(count);
      fill(data, self.rank, round);
      self.comm.all_reduce(data.data(), data.data(), count, DataType::i32, ReduceOp::sum);
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(data[i], total(2, i, round));
      self.kept.clear();
    }
    EXPECT_EQ(self.state->direct_operations(), 50u);
  });
}

TEST(DirectOffer, DifferentCallsAreStillNamed) {
  run(2, [](Rank& self) {
    auto data = self.allocate<std::int32_t>(5000);
    try {
      self.comm.all_reduce(data.data(), data.data(), self.rank == 0 ? 5000 : 4999, DataType::i32,
                           ReduceOp::sum);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
    }
    EXPECT_FALSE(self.comm.agree().committed());
    fill(data, self.rank, 1);
    self.comm.all_reduce(data.data(), data.data(), 5000, DataType::i32, ReduceOp::sum);
    EXPECT_EQ(data[4999], total(2, 4999, 1));
  });
}

// The stand-in for the broker imports nothing: each rank is told who cannot reach what, and how to do
// without.
TEST(DirectOffer, WhatCannotBeMappedEndsTheOperationOnEveryRank) {
  LocalJob job(2);
  std::vector<float> memory(2 * 5000, 1.0f);
  run_ranks(job, [&](Communicator& comm, int rank) {
    float* data = memory.data() + rank * 5000;
    try {
      comm.all_reduce(data, data, 5000, DataType::f32, ReduceOp::sum);
      EXPECT_EQ(data[0], 2.0f) << "private memory goes through scratch";
      memory::MemberMemory::of(job.client_of(rank))
          ->windows()
          .add(data, 5000 * sizeof(float), static_cast<broker::SegmentId>(100 + rank), 0);
      comm.all_reduce(data, data, 5000, DataType::f32, ReduceOp::sum);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("cannot be mapped"));
      EXPECT_THAT(error.what(), HasSubstr("TUGLINE_ZERO_COPY"));
    }
    EXPECT_FALSE(comm.agree().committed());
    comm.barrier();
  });
}

// A rank dies after it has offered: its memory goes with it, and what the others are told is its death.
TEST(DirectOffer, AnOwnerThatDiesIsALossNotAnAbort) {
  LocalJob job(3);
  std::vector<float> memory(3 * 5000, 1.0f);
  run_ranks(job, [&](Communicator& comm, int rank) {
    float* data = memory.data() + rank * 5000;
    memory::MemberMemory::of(job.client_of(rank))
        ->windows()
        .add(data, 5000 * sizeof(float), kFirstOfTheDead + static_cast<broker::SegmentId>(rank), 0);
    std::thread death;
    if (rank == 2)
      death = std::thread([&] {
        // Everybody has offered and has found that there is nothing to map.
        while (job.refused_imports() < 3) std::this_thread::yield();
        job.kill(2);
      });
    try {
      comm.all_reduce(data, data, 5000, DataType::f32, ReduceOp::sum);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), rank == 2 ? ErrorCode::stale_epoch : ErrorCode::peer_lost) << error.what();
      if (rank != 2) {
        EXPECT_EQ(error.context().peer, 2);
      }
    }
    if (death.joinable()) death.join();
    if (rank == 2) return;
    EXPECT_TRUE(comm.agree().membership_changed());
    comm.barrier();
  });
}

}  // namespace
}  // namespace tugline::comm::test

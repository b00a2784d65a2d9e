// SPDX-License-Identifier: Apache-2.0
// Collectives between buffers that all ranks can reach: over the real broker, with ranks as threads that are
// members of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "broker_ranks.h"
#include "local_job.h"
#include "memory/member_memory.h"

namespace tugline::comm::test {
namespace {

using ::testing::HasSubstr;

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
  Kind kind = Kind::library;
  Ranks are = Ranks::processes;
};

class Direct : public ::testing::TestWithParam<Case> {};

TEST_P(Direct, EveryCollectiveIsRightAndCopiesNothing) {
  const auto [ranks, count, offset, kind, are] = GetParam();
  const auto body = [ranks = ranks, count = count, offset = offset, kind = kind](Rank& self) {
    // From here on everybody is known to be there.
    self.comm.barrier();
    const auto n = static_cast<std::size_t>(ranks);
    const int root = ranks - 1;
    auto small = self.allocate<std::int32_t>(count, offset, kind);
    auto result = self.allocate<std::int32_t>(count, offset + 1, kind);
    auto large = self.allocate<std::int32_t>(count * n, offset, kind);
    auto all = self.allocate<std::int32_t>(count * n, offset + 3, kind);
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
  };
  run(ranks, body, are);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Direct,
                         ::testing::Values(Case{2, 1024, 0}, Case{2, 100'003, 5}, Case{3, 50'001, 1},
                                           Case{5, 3001, 0}, Case{7, 1025, 2}));
INSTANTIATE_TEST_SUITE_P(Registered, Direct,
                         ::testing::Values(Case{2, 1024, 0, Kind::registered},
                                           Case{3, 50'001, 1, Kind::registered},
                                           Case{5, 3001, 7, Kind::registered}));
INSTANTIATE_TEST_SUITE_P(Threads, Direct,
                         ::testing::Values(Case{2, 1024, 0, Kind::private_memory, Ranks::threads},
                                           Case{3, 100'003, 5, Kind::private_memory, Ranks::threads},
                                           Case{7, 1025, 2, Kind::private_memory, Ranks::threads},
                                           Case{3, 3001, 0, Kind::library, Ranks::threads}));

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

// In a reduce nobody is at the buffers of the root, which may be through, and have freed them, before the
// others look.
TEST(DirectOffer, NobodyMapsBuffersThatItDoesNotTouch) {
  run(3, [](Rank& self) {
    const auto data = self.allocate<std::int32_t>(4096);
    fill(data, self.rank, 1);
    self.comm.reduce(data, ReduceOp::sum, 1);
    EXPECT_EQ(self.state->direct_operations(), 1u);
    EXPECT_EQ(memory::MemberMemory::of(self.client)->imports().statistics().imports,
              self.rank == 1 ? 2u : 0u);
    EXPECT_EQ(data[77], self.rank == 1 ? total(3, 77, 1) : value(self.rank, 77, 1));
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

// One thread's Job has allocated what all work on.
TEST(DirectThreads, ABufferOfAnotherRanksJobIsReachedToo) {
  std::atomic<std::int32_t*> shared{nullptr};
  constexpr std::size_t kCount = 5000;
  run(
      3,
      [&](Rank& self) {
        if (self.rank == 0) shared = self.allocate<std::int32_t>(3 * kCount).data();
        self.comm.barrier();
        const std::span<std::int32_t> data(shared + static_cast<std::size_t>(self.rank) * kCount, kCount);
        fill(data, self.rank, 0);
        self.comm.all_reduce(data.data(), data.data(), kCount, DataType::i32, ReduceOp::sum);
        for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(data[i], total(3, i, 0));
        EXPECT_EQ(self.state->direct_operations(), 1u);
        self.comm.barrier();
      },
      Ranks::threads);
}

TEST(DirectThreads, ASplitCommunicatorOfThreadsReachesAllMemoryToo) {
  run(
      4,
      [](Rank& self) {
        auto half = self.state->split(self.rank % 2, self.rank);
        Communicator comm(half);
        comm.barrier();
        std::vector<std::int32_t> data(3000, self.rank);
        comm.all_reduce(std::span(data), ReduceOp::sum);
        EXPECT_EQ(data[2999], self.rank % 2 == 0 ? 2 : 4);
        EXPECT_EQ(half->direct_operations(), 1u);
      },
      Ranks::threads);
}

/// Memory whose later use is a fault.
class Mapped {
 public:
  explicit Mapped(std::size_t bytes) : bytes_(bytes) {
    address_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  ~Mapped() { ::munmap(address_, bytes_); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  float* data() const { return static_cast<float*>(address_); }

 private:
  std::size_t bytes_;
  void* address_;
};

/// Somewhere within the first operations, in each round a little later.
void abort_later(Communicator& comm, const std::atomic<bool>& begun, int round) {
  while (!begun) std::this_thread::yield();
  for (int spin = 0; spin < round * 20'000; ++spin) std::atomic_signal_fence(std::memory_order_seq_cst);
  comm.abort("tested");
}

// While the others are at a rank's buffers its call fails, and the caller writes there at once.
TEST(DirectOffer, NobodyWritesToABufferOnceItsCallHasFailed) {
  constexpr std::size_t kCount = 1 << 20;
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> begun{false};
    run(3, [&](Rank& self) {
      auto buffer = self.allocate<float>(kCount);
      self.comm.barrier();
      std::thread breaker;
      if (self.rank == 2) breaker = std::thread(abort_later, std::ref(self.comm), std::cref(begun), round);
      begun = true;
      try {
        for (;;) self.comm.all_reduce(buffer.data(), buffer.data(), kCount, DataType::f32, ReduceOp::max);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
      }
      const auto own = -1.0f - static_cast<float>(self.rank);
      std::fill(buffer.begin(), buffer.end(), own);
      if (breaker.joinable()) breaker.join();
      EXPECT_FALSE(self.comm.agree().committed());  // by then everybody is out
      self.comm.barrier();
      EXPECT_TRUE(std::all_of(buffer.begin(), buffer.end(), [&](float value) { return value == own; }))
          << "rank " << self.rank << ", round " << round;
    });
  }
}

// While the others are at a rank's buffers its call fails, and the memory goes at once.
TEST(DirectThreads, NobodyIsAtABufferOnceItsCallHasFailed) {
  constexpr std::size_t kCount = 1 << 20;
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> begun{false};
    std::atomic<int> failed{0};
    run(
        3,
        [&](Rank& self) {
          self.comm.barrier();
          std::thread breaker;
          if (self.rank == 2)
            breaker = std::thread(abort_later, std::ref(self.comm), std::cref(begun), round);
          try {
            for (int operation = 0; operation < 200; ++operation) {
              const Mapped memory(kCount * sizeof(float));
              begun = true;
              self.comm.all_reduce(memory.data(), memory.data(), kCount, DataType::f32, ReduceOp::sum);
            }
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
            ++failed;
          }
          if (breaker.joinable()) breaker.join();
          EXPECT_FALSE(self.comm.agree().committed());
        },
        Ranks::threads);
    EXPECT_EQ(failed, 3);
  }
}

// A rank has offered and gone before the last one comes, which finds all offers there.
TEST(DirectThreads, WhoComesLateKeepsOffTheBuffersOfWhoHasGone) {
  constexpr std::size_t kCount = 5000;
  std::atomic<int> gone{0};
  run(
      3,
      [&](Rank& self) {
        self.comm.barrier();
        if (self.rank == 2)
          while (gone < 2) std::this_thread::yield();
        try {
          const Mapped memory(kCount * sizeof(float));
          std::thread breaker;
          if (self.rank == 0)
            breaker = std::thread([&] {
              // Both have offered.
              const auto epoch = self.state->current();
              for (const std::uint32_t rank : {0u, 1u})
                while (epoch->bank.descriptor(rank, 2).sequence.load() != 2) std::this_thread::yield();
              self.comm.abort("tested");
            });
          try {
            self.comm.all_reduce(memory.data(), memory.data(), kCount, DataType::f32, ReduceOp::sum);
            ADD_FAILURE() << "no error";
          } catch (...) {
            if (breaker.joinable()) breaker.join();
            throw;
          }
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
        }
        ++gone;
        EXPECT_FALSE(self.comm.agree().committed());
      },
      Ranks::threads);
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

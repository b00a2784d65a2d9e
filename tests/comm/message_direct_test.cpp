// SPDX-License-Identifier: Apache-2.0
// Messages out of buffers that the receiver can reach: nothing is copied in between, and nobody reads there
// once the sender's call has returned.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "broker_ranks.h"
#include "local_job.h"

namespace tugline::comm::test {
namespace {

constexpr std::size_t kCount = 300'001;

float value(int rank, std::size_t i, int round) {
  return static_cast<float>(i % 1000 * 3 + static_cast<std::size_t>(rank * 7 + round));
}

void exchange(Rank& self, Kind kind, std::size_t count, bool is_direct) {
  self.comm.barrier();
  auto mine = self.allocate<float>(count, 3, kind);
  auto got = self.allocate<float>(count, 1, kind);
  for (int round = 0; round < 5; ++round) {
    for (std::size_t i = 0; i < count; ++i) mine[i] = value(self.rank, i, round);
    const auto right = [&] {
      for (std::size_t i = 0; i < count; ++i)
        if (got[i] != value(1 - self.rank, i, round)) return false;
      return true;
    };
    Group group;
    self.comm.send(mine.data(), count, DataType::f32, 1 - self.rank, group);
    self.comm.recv(got.data(), count, DataType::f32, 1 - self.rank, group);
    group.run();
    EXPECT_TRUE(right());
    std::fill(got.begin(), got.end(), -1.0f);
    const auto before = self.state->direct_operations();
    for (int from : {0, 1}) {
      if (self.rank == from)
        self.comm.send(mine.data(), count, DataType::f32, 1 - from);
      else
        self.comm.recv(got.data(), count, DataType::f32, from);
    }
    EXPECT_TRUE(right());
    EXPECT_EQ(self.state->direct_operations() - before, is_direct ? 2u : 0u);
  }
}

TEST(MessageDirect, OutOfLibraryMemory) {
  run(2, [](Rank& self) { exchange(self, Kind::library, kCount, true); });
}
TEST(MessageDirect, OutOfRegisteredMemory) {
  run(2, [](Rank& self) { exchange(self, Kind::registered, kCount, true); });
}
TEST(MessageDirect, BetweenThreadsOfOneProcess) {
  run(
      2, [](Rank& self) { exchange(self, Kind::private_memory, kCount, true); }, Ranks::threads);
}
TEST(MessageDirect, NotOutOfPrivateMemoryOfAProcess) {
  run(2, [](Rank& self) { exchange(self, Kind::private_memory, kCount, false); });
}
TEST(MessageDirect, NotForShortMessages) {
  run(2, [](Rank& self) { exchange(self, Kind::library, kDirectMessageBytes / sizeof(float) - 1, false); });
}

// The receiver comes when the sender has been told of an abort and has freed its buffer.
TEST(MessageDirect, WhoComesLateKeepsOffTheSendersBuffer) {
  std::atomic<bool> gone{false};
  run(
      2,
      [&](Rank& self) {
        self.comm.barrier();
        try {
          if (self.rank == 0) {
            std::vector<float> mine(kCount);
            std::thread breaker([&] {
              const auto epoch = self.state->current();
              while (epoch->bank.messages(0, 1).cells[1].flag.load() == 0) std::this_thread::yield();
              self.comm.abort("tested");
            });
            try {
              self.comm.send(mine.data(), kCount, DataType::f32, 1);
              ADD_FAILURE() << "no error";
            } catch (...) {
              breaker.join();
              mine = {};
              gone = true;
              throw;
            }
          } else {
            while (!gone) std::this_thread::yield();
            std::vector<float> got(kCount, -1.0f);
            try {
              self.comm.recv(got.data(), kCount, DataType::f32, 0);
              ADD_FAILURE() << "no error";
            } catch (...) {
              for (const float element : got) ASSERT_EQ(element, -1.0f);
              throw;
            }
          }
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
        }
        EXPECT_FALSE(self.comm.agree().committed());
      },
      Ranks::threads);
}

// The stand-in for the broker imports nothing.
TEST(MessageDirect, WhatCannotBeMappedGoesThroughBuffers) {
  LocalJob job(2);
  std::vector<float> memory(kCount);
  for (std::size_t i = 0; i < kCount; ++i) memory[i] = value(0, i, 0);
  run_ranks(job, [&](Communicator& comm, int rank) {
    std::vector<float> got(kCount);
    if (rank == 0)
      memory::MemberMemory::of(job.client_of(0))
          ->windows()
          .add(memory.data(), kCount * sizeof(float), broker::SegmentId{100}, 0);
    for (int round = 0; round < 3; ++round) {
      if (rank == 0) {
        comm.send(memory.data(), kCount, DataType::f32, 1);
      } else {
        comm.recv(got.data(), kCount, DataType::f32, 0);
        ASSERT_EQ(got, memory);
      }
    }
  });
}

TEST(MessageDirect, ASenderThatDiesIsALossNotAnAbort) {
  LocalJob job(2);
  std::vector<float> memory(kCount);
  run_ranks(job, [&](Communicator& comm, int rank) {
    std::thread death;
    try {
      if (rank == 0) {
        memory::MemberMemory::of(job.client_of(0))
            ->windows()
            .add(memory.data(), kCount * sizeof(float), kFirstOfTheDead, 0);
        death = std::thread([&] {
          while (job.refused_imports() < 1) std::this_thread::yield();
          job.kill(0);
        });
        comm.send(memory.data(), kCount, DataType::f32, 1);
      } else {
        std::vector<float> got(kCount);
        comm.recv(got.data(), kCount, DataType::f32, 0);
      }
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), rank == 0 ? ErrorCode::stale_epoch : ErrorCode::peer_lost) << error.what();
    }
    if (death.joinable()) death.join();
    if (rank == 1) {
      EXPECT_TRUE(comm.agree().membership_changed());
    }
  });
}

}  // namespace
}  // namespace tugline::comm::test

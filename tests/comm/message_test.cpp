// SPDX-License-Identifier: Apache-2.0
// Messages of all sizes, one at a time and many at once, and what becomes of those that do not match.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "comm/forced_plan.h"
#include "core/plan/builders.h"
#include "local_job.h"

namespace tugline::comm::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Around what fits a cell, a chunk, some chunks, all buffers.
constexpr std::array<std::size_t, 17> kBytes{
    0, 1, 8, 31, 32, 33, 64, 1000, 16384, 16385, 50'000, 65'535, 65'537, 98'304, 524'288, 1'100'001, 24'601};

std::vector<std::uint8_t> contents(std::size_t bytes, int from, std::size_t number) {
  std::vector<std::uint8_t> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    data[i] = static_cast<std::uint8_t>(i * 7 + i / 251 + number * 31 + static_cast<std::size_t>(from) * 101);
  return data;
}

TEST(Messages, OneAtATimeThereAndBack) {
  run_ranks(3, [](Communicator& comm, int rank) {
    for (std::size_t round = 0; round < 3; ++round) {
      for (const std::size_t bytes : kBytes) {
        for (int from = 0; from < 3; ++from) {
          const int to = (from + 1) % 3;
          if (rank == from) comm.send(contents(bytes, from, round).data(), bytes, DataType::u8, to);
          if (rank != to) continue;
          std::vector<std::uint8_t> got(bytes);
          comm.recv(got.data(), bytes, DataType::u8, from);
          ASSERT_EQ(got, contents(bytes, from, round)) << bytes << " bytes";
        }
      }
    }
  });
}

TEST(Messages, OneWayForLongAndThenTheOtherWay) {
  run_ranks(2, [](Communicator& comm, int rank) {
    for (int from : {0, 1, 0}) {
      std::mt19937 random(static_cast<unsigned>(from + 5));
      for (std::size_t i = 0; i < 400; ++i) {
        const std::size_t bytes = random() % 4 == 0 ? random() % 100'000 : random() % 100;
        if (rank == from) {
          comm.send(contents(bytes, from, i).data(), bytes, DataType::u8, 1 - from);
          continue;
        }
        std::vector<std::uint8_t> got(bytes);
        comm.recv(got.data(), bytes, DataType::u8, from);
        ASSERT_EQ(got, contents(bytes, from, i)) << "message " << i << " of " << bytes << " bytes";
      }
    }
  });
}

// As many as there are cells are sent without a word of the receiver.
TEST(Messages, ASenderRunsAhead) {
  run_ranks(2, [](Communicator& comm, int rank) {
    comm.barrier();
    for (int round = 0; round < 5; ++round) {
      for (std::size_t i = 0; i < kMessageCells; ++i)
        comm.send(contents(20, rank, i).data(), 20, DataType::u8, 1 - rank);
      for (std::size_t i = 0; i < kMessageCells; ++i) {
        std::vector<std::uint8_t> got(20);
        comm.recv(got.data(), 20, DataType::u8, 1 - rank);
        ASSERT_EQ(got, contents(20, 1 - rank, i));
      }
    }
  });
}

TEST(Messages, ManyInFlightBothWaysInGroups) {
  run_ranks(3, [](Communicator& comm, int rank) {
    std::mt19937 shared(7);  // the same at all ranks
    for (int round = 0; round < 12; ++round) {
      std::vector<std::size_t> sizes(1 + shared() % 40);
      for (auto& size : sizes) size = kBytes[shared() % kBytes.size()];
      std::vector<std::vector<std::uint8_t>> out, in, wanted;
      Group group;
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        for (int peer = 0; peer < 3; ++peer) {
          out.push_back(contents(sizes[i], rank, i));
          in.emplace_back(sizes[i]);
          wanted.push_back(contents(sizes[i], peer, i));
          comm.recv(in.back().data(), sizes[i], DataType::u8, peer, group);
          comm.send(out.back().data(), sizes[i], DataType::u8, peer, group);
        }
      }
      group.run();
      EXPECT_EQ(group.size(), 0u);
      for (std::size_t i = 0; i < in.size(); ++i) ASSERT_EQ(in[i], wanted[i]) << "message " << i;
    }
  });
}

// A rank may send and receive in a group while its peer does one after the other.
TEST(Messages, GroupsMeetSingleCalls) {
  run_ranks(2, [](Communicator& comm, int rank) {
    for (const std::size_t bytes : kBytes) {
      const auto mine = contents(bytes, rank, 0);
      std::vector<std::uint8_t> got(bytes);
      if (rank == 0) {
        Group group;
        comm.send(mine.data(), bytes, DataType::u8, 1, group);
        comm.recv(got.data(), bytes, DataType::u8, 1, group);
        group.run();
      } else {
        comm.recv(got.data(), bytes, DataType::u8, 0);
        comm.send(mine.data(), bytes, DataType::u8, 0);
      }
      ASSERT_EQ(got, contents(bytes, 1 - rank, 0)) << bytes;
    }
  });
}

TEST(Messages, ADifferentCountOrTypeIsNamedOnBothSidesAtAnySize) {
  struct Pair {
    std::size_t sent, received;
    DataType type;
    const char* text;
  };
  for (const Pair& pair :
       {Pair{2, 3, DataType::f32, "rank 1 called recv(count 3, f32), rank 0 called send(count 2, f32)"},
        Pair{2, 2, DataType::i32, "rank 1 called recv(count 2, i32), rank 0 called send(count 2, f32)"},
        Pair{0, 1, DataType::f32, "rank 1 called recv(count 1, f32), rank 0 called send(count 0, f32)"},
        Pair{2, 900, DataType::f32, "rank 1 called recv(count 900, f32), rank 0 called send(count 2, f32)"},
        Pair{90'000, 1, DataType::f32,
             "rank 1 called recv(count 1, f32), rank 0 called send(count 90000, f32)"}}) {
    for (const bool grouped : {false, true}) {
      run_ranks(2, [&](Communicator& comm, int rank) {
        std::vector<float> values(200'000), other(200'000);
        comm.barrier();
        try {
          Group group;
          const Target target = grouped ? Target(group) : Target();
          if (rank == 0) {
            comm.send(values.data(), pair.sent, DataType::f32, 1, target);
            if (grouped) comm.recv(other.data(), 5, DataType::f32, 1, target);
          } else {
            comm.recv(values.data(), pair.received, pair.type, 0, target);
            if (grouped) comm.send(other.data(), 5, DataType::f32, 0, target);
          }
          group.run();
          comm.barrier();
          ADD_FAILURE() << "no error of rank " << rank;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::mismatch);
          EXPECT_THAT(error.what(), AllOf(HasSubstr(pair.text), HasSubstr("as message 1")));
        }
        // Fresh cells and buffers.
        EXPECT_FALSE(comm.agree().committed());
        if (rank == 0)
          comm.send(values.data(), 90'000, DataType::f32, 1);
        else
          comm.recv(values.data(), 90'000, DataType::f32, 0);
        EXPECT_TRUE(comm.agree().committed());
      });
    }
  }
}

TEST(Messages, ADeadPeerEndsBothSidesAndWhatItHasSentIsReceived) {
  LocalJob job(3);
  run_ranks(job, [&](Communicator& comm, int rank) {
    std::vector<float> values(1'000'000, 1.0f);
    comm.barrier();
    if (rank == 2) {
      const float last = 5.0f;
      comm.send(&last, 1, DataType::f32, 0);
      job.kill(2);
      return;
    }
    if (rank == 0) {
      float last = 0;
      comm.recv(&last, 1, DataType::f32, 2);
      EXPECT_EQ(last, 5.0f);
    }
    try {
      // More than all buffers, and something that never comes.
      if (rank == 0)
        comm.recv(values.data(), 1, DataType::f32, 2);
      else
        comm.send(values.data(), values.size(), DataType::f32, 2);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
      EXPECT_EQ(error.context().peer, 2);
    }
    EXPECT_TRUE(comm.agree().membership_changed());
    if (rank == 0)
      comm.send(values.data(), values.size(), DataType::f32, 1);
    else
      comm.recv(values.data(), values.size(), DataType::f32, 0);
  });
}

TEST(Messages, NoPlanFromOutsideRunsThem) {
  run_ranks(2, [](Communicator& comm, int) {
    core::PlanRequest request{
        .collective = core::Collective::send_recv, .ranks = 2, .bytes = 64, .scratch_bytes = 4096};
    try {
      force_plan(comm, core::build("point_to_point", request), PlanTrust::checked);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_THAT(error.what(), HasSubstr("is of send_recv"));
    }
  });
}

}  // namespace
}  // namespace tugline::comm::test

// SPDX-License-Identifier: Apache-2.0
// Ranks that need nobody's data run ahead: a broadcast's and a scatter's root, and everybody but the root of
// a reduce or gather. Nothing is overwritten by it, and a call that differs is still found by every rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <random>
#include <string>
#include <vector>

#include "local_job.h"

namespace tugline::comm::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kFloat = DataType::f32;

struct Rooted {
  const char* name;
  bool root_is_ahead;
  std::function<void(Communicator&, const float* send, float* recv, std::size_t count)> call;  ///< root 0
};

const Rooted kRooted[] = {
    {"broadcast", true,
     [](Communicator& c, const float* s, float* r, std::size_t n) { c.broadcast(s, r, n, kFloat, 0); }},
    {"scatter", true,
     [](Communicator& c, const float* s, float* r, std::size_t n) { c.scatter(s, r, n, kFloat, 0); }},
    {"reduce", false,
     [](Communicator& c, const float* s, float* r, std::size_t n) {
       c.reduce(s, r, n, kFloat, ReduceOp::sum, 0);
     }},
    {"gather", false,
     [](Communicator& c, const float* s, float* r, std::size_t n) { c.gather(s, r, n, kFloat, 0); }},
};

class Ahead : public ::testing::TestWithParam<Rooted> {};

INSTANTIATE_TEST_SUITE_P(Rooted, Ahead, ::testing::ValuesIn(kRooted),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(Ahead, WhoeverNeedsNobodyReturnsBeforeTheOthersCall) {
  for (const std::size_t count : {std::size_t{2}, std::size_t{1000}}) {
    std::promise<void> returned;
    const auto has_returned = returned.get_future().share();
    run_ranks(2, [&](Communicator& comm, int rank) {
      std::vector<float> send(2 * count, 1.0f), recv(2 * count, 0.0f);
      comm.barrier();
      const bool ahead = GetParam().root_is_ahead == (rank == 0);
      // A minute stands for ever: this rank's call would end the other one's wait.
      if (!ahead) {
        ASSERT_EQ(has_returned.wait_for(std::chrono::minutes(1)), std::future_status::ready);
      }
      GetParam().call(comm, send.data(), recv.data(), count);
      if (ahead) returned.set_value();
      comm.barrier();
    });
  }
}

TEST_P(Ahead, ADeathIsNoticedByWhoeverIsAhead) {
  LocalJob job(2);
  const int ahead = GetParam().root_is_ahead ? 0 : 1;
  run_ranks(job, [&](Communicator& comm, int rank) {
    std::vector<float> send(4, 1.0f), recv(4, 0.0f);
    comm.barrier();
    if (rank != ahead) return job.kill(rank);
    int calls = 0;
    try {
      for (; calls < 100; ++calls) GetParam().call(comm, send.data(), recv.data(), 2);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
    }
    EXPECT_LE(calls, static_cast<int>(kHistory));
    EXPECT_TRUE(comm.agree().membership_changed());
  });
}

TEST(AheadMixed, NothingIsOverwrittenWhateverTheOrder) {
  constexpr int kRanks = 3;
  for (const unsigned seed : {1u, 2u, 3u}) {
    run_ranks(kRanks, [&](Communicator& comm, int rank) {
      std::mt19937 choices(seed);  // alike on all ranks
      for (int round = 0; round < 600; ++round) {
        const auto kind = choices() % 6;
        const int root = static_cast<int>(choices() % kRanks);
        const std::size_t count = choices() % 4 == 0 ? 1 + choices() % 30000 : 1 + choices() % 8;
        const auto value = [&](int of) { return static_cast<float>(1000 * of + round); };
        std::vector<float> send(count * kRanks), recv(count * kRanks, -1.0f);
        std::fill(send.begin(), send.end(), value(rank));
        const auto expect = [&](std::size_t block, float wanted) {
          for (std::size_t i = block * count; i < (block + 1) * count; ++i)
            ASSERT_EQ(recv[i], wanted) << "kind " << kind << " round " << round << " element " << i;
        };
        const float sum = value(0) + value(1) + value(2);
        switch (kind) {
          case 0:
            comm.broadcast(send.data(), recv.data(), count, kFloat, root);
            expect(0, value(root));
            break;
          case 1:
            comm.scatter(send.data(), recv.data(), count, kFloat, root);
            expect(0, value(root));
            break;
          case 2:
            comm.reduce(send.data(), recv.data(), count, kFloat, ReduceOp::sum, root);
            if (rank == root) expect(0, sum);
            break;
          case 3:
            comm.gather(send.data(), recv.data(), count, kFloat, root);
            for (int from = 0; rank == root && from < kRanks; ++from)
              expect(static_cast<std::size_t>(from), value(from));
            break;
          case 4:
            comm.all_reduce(send.data(), recv.data(), count, kFloat, ReduceOp::sum);
            expect(0, sum);
            break;
          default:
            comm.all_to_all(send.data(), recv.data(), count, kFloat);
            for (int from = 0; from < kRanks; ++from) expect(static_cast<std::size_t>(from), value(from));
        }
        if (::testing::Test::HasFatalFailure()) return;
      }
    });
  }
}

/// What every rank must be told.
void expect_mismatch(const std::function<void()>& call, const std::string& one, const std::string& other) {
  try {
    call();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
    EXPECT_THAT(error.what(), AllOf(HasSubstr(one), HasSubstr(other)));
  }
}

constexpr const char* kRootOne = "rank 1 called broadcast(count 3, f32, root 1)";
constexpr const char* kRootZero = "rank 0 called broadcast(count 3, f32, root 0)";

void broadcast_as_root(Communicator& comm, int rank) {
  float values[3] = {};
  comm.broadcast(values, values, 3, kFloat, rank);
}

TEST(AheadMismatch, TwoRootsOfTwoBroadcastsAreToldByTheNextCall) {
  run_ranks(2, [&](Communicator& comm, int rank) {
    expect_mismatch(
        [&] {
          broadcast_as_root(comm, rank);
          comm.barrier();
        },
        kRootZero, kRootOne);
    EXPECT_FALSE(comm.agree().committed());
    comm.barrier();
  });
}

TEST(AheadMismatch, TwoRootsThatGoOnAsRootsAreToldAtTheLatestWhenTheyWouldLoseSightOfIt) {
  run_ranks(2, [&](Communicator& comm, int rank) {
    int calls = 0;
    expect_mismatch(
        [&] {
          for (; calls < 100; ++calls) broadcast_as_root(comm, rank);
        },
        kRootZero, kRootOne);
    EXPECT_LE(calls, static_cast<int>(kHistory));
    EXPECT_FALSE(comm.agree().committed());
    comm.barrier();
  });
}

TEST(AheadMismatch, EveryRankIsToldByTheAgreementThatCallsDiffer) {
  run_ranks(3, [&](Communicator& comm, int rank) {
    for (int round = 0; round < 20; ++round) {
      comm.barrier();
      float values[9] = {};
      // Nobody hears from anybody: ranks 1 and 2 send to different roots, rank 0 is a root itself.
      if (rank == 0) {
        comm.broadcast(values, values, 3, kFloat, 0);
      } else {
        comm.reduce(values, nullptr, 3, kFloat, ReduceOp::sum, 3 - rank);
      }
      expect_mismatch([&] { comm.agree(); }, "as operation ", "called ");
      EXPECT_FALSE(comm.agree().committed());
      EXPECT_TRUE(comm.agree().committed());
    }
  });
}

TEST(AheadMismatch, OneCallMoreThanTheOthersIsToldByTheAgreement) {
  run_ranks(2, [&](Communicator& comm, int rank) {
    for (int round = 0; round < 20; ++round) {
      comm.barrier();
      expect_mismatch(
          [&] {
            if (rank == 0) broadcast_as_root(comm, 0);
            comm.agree();
          },
          kRootZero, "rank 1 called agree()");
      EXPECT_FALSE(comm.agree().committed());
      EXPECT_TRUE(comm.agree().committed());
    }
  });
}

TEST(AheadMismatch, DifferentCallsInAChildAreToldByTheParentsAgreement) {
  run_ranks(3, [&](Communicator& comm, int rank) {
    Communicator pair = comm.split(rank < 2 ? 0 : 1, rank);
    for (int round = 0; round < 5; ++round) {
      if (rank < 2) {
        broadcast_as_root(pair, rank);
        expect_mismatch([&] { comm.agree(); }, kRootZero, kRootOne);
        expect_mismatch([&] { pair.barrier(); }, kRootZero, kRootOne);
      } else {
        // Its own calls are right: it goes on, and hears of it at its next one.
        EXPECT_TRUE(comm.agree().committed());
        expect_mismatch([&] { comm.barrier(); }, kRootZero, kRootOne);
      }
      EXPECT_FALSE(comm.agree().committed());
      pair.barrier();
      EXPECT_TRUE(comm.agree().committed());
    }
  });
}

TEST(AheadMismatch, AgreementsWithEqualCallsAheadCommit) {
  run_ranks(3, [&](Communicator& comm, int rank) {
    Communicator pair = comm.split(rank < 2 ? 0 : 1, rank);
    for (int round = 0; round < 300; ++round) {
      float values[3] = {};
      for (int i = 0; i < round % 10; ++i) comm.broadcast(values, values, 3, kFloat, round % 3);
      for (int i = 0; i < round % 7; ++i) pair.broadcast(values, values, 3, kFloat, 0);
      if (round % 5 == 0) {
        ASSERT_TRUE(pair.agree().committed());
      }
      ASSERT_TRUE(comm.agree().committed());
    }
  });
}

}  // namespace
}  // namespace tugline::comm::test

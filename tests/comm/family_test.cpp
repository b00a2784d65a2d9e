// SPDX-License-Identifier: Apache-2.0
// A communicator and those split from it: one agreement covers them all, and whoever waits in one of them for
// a rank that has gone to the agreement of another is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "device/registry.h"
#include "local_job.h"

namespace tugline::comm::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The text of the mismatch that `call` must end in.
std::string mismatch_of(const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
    return error.what();
  }
  return {};
}

struct PassedOver {
  const char* name;
  std::function<void(Communicator& child)> waits;  ///< rank 0
  const char* called;
  int generations;  ///< between the child and the communicator whose agreement the others are in
};

class Family : public ::testing::TestWithParam<PassedOver> {};

TEST_P(Family, WhoeverWaitsInAChildForARankInAnAncestorsAgreementIsTold) {
  run_ranks(3, [&](Communicator& comm, int rank) {
    // Ranks 0 and 1 share the child; rank 2 only knows the first communicator.
    std::vector<Communicator> line;
    line.push_back(comm.split(rank < 2 ? 0 : 1, rank));
    for (int i = 1; i < GetParam().generations; ++i) line.push_back(line.back().split(0, rank));
    for (int round = 0; round < 2; ++round) {
      const std::string text =
          mismatch_of([&] { rank == 0 ? GetParam().waits(line.back()) : static_cast<void>(comm.agree()); });
      EXPECT_THAT(text, AllOf(HasSubstr("rank 0 called " + std::string(GetParam().called)),
                              HasSubstr("rank 1 called agree()")));
      // Each names the communicator that is not the one its error is about.
      EXPECT_THAT(text, HasSubstr(rank == 0 ? "agree() of communicator " : " of communicator world.1.0"));
      const Outcome outcome = comm.agree();
      EXPECT_FALSE(outcome.committed());
      EXPECT_FALSE(outcome.membership_changed());
      for (auto& child : line) {
        float one = 1.0f;
        child.all_reduce(&one, &one, 1, DataType::f32, ReduceOp::sum);
        EXPECT_EQ(one, rank < 2 ? 2.0f : 1.0f);
        EXPECT_TRUE(child.agree().committed());
      }
      EXPECT_TRUE(comm.agree().committed());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Calls, Family,
    ::testing::Values(PassedOver{"Barrier", [](Communicator& child) { child.barrier(); }, "barrier()", 1},
                      PassedOver{"AllReduce",
                                 [](Communicator& child) {
                                   std::vector<float> values(100'000);
                                   child.all_reduce(std::span<float>(values), ReduceOp::sum);
                                 },
                                 "all_reduce(count 100000, f32, sum)", 1},
                      PassedOver{"Message",
                                 [](Communicator& child) {
                                   float value = 0;
                                   child.recv(&value, 1, DataType::f32, 1);
                                 },
                                 "send/recv(count 1, f32)", 1},
                      PassedOver{"Agreement", [](Communicator& child) { child.agree(); }, "agree()", 1},
                      PassedOver{"Grandchild", [](Communicator& child) { child.barrier(); }, "barrier()", 2},
                      PassedOver{"GrandchildsAgreement", [](Communicator& child) { child.agree(); },
                                 "agree()", 2}),
    [](const auto& test) { return std::string(test.param.name); });

// The rank that failed says so by its post: nobody made a wrong call.
TEST(Family, AStepThatWasGivenUpEndsTheChildsOperationsAsAborted) {
  run_ranks(3, [&](Communicator& comm, int rank) {
    Communicator pair = comm.split(rank < 2 ? 0 : 1, rank);
    Communicator other = comm.split(rank > 0 ? 0 : 1, rank);
    if (rank == 2) other.abort("rank 2 has had enough");
    try {
      rank == 0 ? pair.barrier() : other.barrier();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
    }
    EXPECT_FALSE(comm.agree().committed());
    pair.barrier();
    other.barrier();
    EXPECT_TRUE(comm.agree().committed());
  });
}

TEST(Family, AChildAgreesAfterItsParentHasDecidedWhoIsLost) {
  LocalJob job(4);
  run_ranks(job, [&](Communicator& comm, int rank) {
    Communicator all = comm.split(0, rank);
    if (rank == 1) {
      job.kill(1);
      return;
    }
    EXPECT_THROW(all.barrier(), Error);
    EXPECT_TRUE(comm.agree().membership_changed());
    EXPECT_EQ(all.size(), 3);
    for (int i = 0; i < 10; ++i) {
      all.barrier();
      const Outcome outcome = all.agree();
      EXPECT_TRUE(outcome.committed());
      EXPECT_FALSE(outcome.membership_changed()) << "told by the parent already";
    }
    EXPECT_TRUE(comm.agree().committed());
  });
}

// What still runs there ends first; what has not begun is refused. Either way all ranks come out of it.
TEST(Family, AnAgreementBesideOperationsOfAChildOnAStreamHidesAndHangsNothing) {
  run_ranks(2, [&](Communicator& comm, int rank) {
    Communicator child = comm.split(0, rank);
    Stream stream = device::host_devices(2)[static_cast<std::size_t>(rank)]->stream();
    for (int round = 0; round < 20; ++round) {
      std::vector<float> values(200'000, 1.0f);
      child.all_reduce(std::span<float>(values), ReduceOp::sum, stream);
      bool failed = false;
      try {
        (void)comm.agree();
      } catch (const Error&) {
        failed = true;
      }
      try {
        stream.sync();
        EXPECT_EQ(values.back(), 2.0f);
      } catch (const Error&) {
        failed = true;
      }
      for (bool settled = false; !settled;) {
        try {
          settled = comm.agree().committed();
        } catch (const Error&) {
          failed = true;
        }
      }
      std::int32_t anybody = failed ? 1 : 0;
      child.all_reduce(&anybody, &anybody, 1, DataType::i32, ReduceOp::sum);
    }
  });
}

}  // namespace
}  // namespace tugline::comm::test

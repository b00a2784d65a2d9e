// SPDX-License-Identifier: Apache-2.0
// With the check off, calls that differ where nobody needs the other's data are no error, now or later.
#include <gtest/gtest.h>

#include <cstdlib>

#include "local_job.h"

namespace tugline::comm::test {
namespace {

// Before the settings are read.
[[maybe_unused]] const int kUnchecked = ::setenv("TUGLINE_CHECK", "off", 1);

TEST(Unchecked, TwoRootsOfTwoBroadcastsGoOn) {
  run_ranks(2, [](Communicator& comm, int rank) {
    for (int round = 0; round < 20; ++round) {
      float values[3] = {1, 2, 3};
      for (int i = 0; i < round % 4; ++i) comm.broadcast(values, values, 3, DataType::f32, rank);
      float sum[300] = {};
      for (float& value : sum) value = static_cast<float>(rank + round);
      comm.all_reduce(sum, sum, round % 2 == 0 ? 3 : 300, DataType::f32, ReduceOp::sum);
      ASSERT_EQ(sum[2], static_cast<float>(1 + 2 * round));
      ASSERT_TRUE(comm.agree().committed());
    }
  });
}

// Whoever needs the data compares: the sizes of the two would not fit.
TEST(Unchecked, WhatIsNeededIsComparedAllTheSame) {
  run_ranks(2, [](Communicator& comm, int rank) {
    float values[4] = {};
    try {
      comm.all_reduce(values, values, rank == 0 ? 3 : 4, DataType::f32, ReduceOp::sum);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
    }
  });
}

}  // namespace
}  // namespace tugline::comm::test

// SPDX-License-Identifier: Apache-2.0
// An average is a number wherever it fits its type, also where the sum does not; and a NaN stays in a minimum
// whoever has it. Through packets, direct plans, and (by TUGLINE_PLAN, see CMakeLists.txt) scratch.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "local_job.h"

namespace tugline::comm::test {
namespace {

constexpr std::size_t kCounts[] = {1, 3, 3001, 300'001};
constexpr int kRanks[] = {1, 2, 3, 5};

void expect_all(const std::vector<std::uint16_t>& got, std::uint16_t want, const char* what) {
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(got[i], want) << what << ", element " << i << " of " << got.size();
}

TEST(Average, FitsWhereTheSumDoesNot) {
  constexpr std::uint16_t kLargest = 0x7bff;  // 65504
  for (int ranks : kRanks) {
    run_ranks(ranks, [&](Communicator& comm, int) {
      for (std::size_t count : kCounts) {
        const std::vector<std::uint16_t> own(count * static_cast<std::size_t>(comm.size()), kLargest);
        std::vector<std::uint16_t> got(count);
        comm.all_reduce(own.data(), got.data(), count, DataType::f16, ReduceOp::avg);
        expect_all(got, kLargest, "all_reduce");
        comm.reduce_scatter(own.data(), got.data(), count, DataType::f16, ReduceOp::avg);
        expect_all(got, kLargest, "reduce_scatter");
        std::vector<std::uint16_t> in_place(count, kLargest);
        comm.all_reduce(in_place.data(), in_place.data(), count, DataType::f16, ReduceOp::avg);
        expect_all(in_place, kLargest, "all_reduce in place");
      }
    });
  }
}

TEST(Minimum, IsNaNWhoeverHasIt) {
  for (int ranks : kRanks) {
    run_ranks(ranks, [&](Communicator& comm, int rank) {
      for (std::size_t count : kCounts) {
        for (int who = 0; who < comm.size(); ++who) {
          std::vector<float> values(count, static_cast<float>(rank));
          if (rank == who) values.back() = std::numeric_limits<float>::quiet_NaN();
          std::vector<float> got(count);
          comm.all_reduce(values.data(), got.data(), count, DataType::f32,
                          who % 2 == 0 ? ReduceOp::min : ReduceOp::max);
          EXPECT_TRUE(std::isnan(got.back()))
              << "rank " << who << " of " << comm.size() << ", count " << count;
          if (count == 1) continue;
          EXPECT_EQ(got.front(), who % 2 == 0 ? 0.0F : static_cast<float>(comm.size() - 1));
        }
      }
    });
  }
}

}  // namespace
}  // namespace tugline::comm::test

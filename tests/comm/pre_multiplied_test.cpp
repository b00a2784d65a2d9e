// SPDX-License-Identifier: Apache-2.0
// Sums of contributions that every rank multiplies by a factor of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "elements.h"
#include "local_job.h"

namespace tugline::comm::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

bool is_integral(DataType type) {
  return type < DataType::f16;
}

/// Factors that keep sums exact in every type: 3, 1, 2, 0, 3 ..., for floating types also quarters.
Reduction factor_of(DataType type, int rank) {
  const int factor = (rank + 1) * 3 % 4;
  if (is_integral(type)) return Reduction::pre_mul_sum(factor);
  return Reduction::pre_mul_sum(factor + 0.25);
}

Elements wanted_sum(DataType type, std::size_t count, int ranks, int round) {
  Elements result(type, count);
  for (std::size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (int rank = 0; rank < ranks; ++rank)
      sum += factor_of(type, rank).factor() * Elements::value(i, rank, round);
    result.set(i, sum);
  }
  return result;
}

class PreMultiplied : public ::testing::TestWithParam<int> {};

TEST_P(PreMultiplied, SumsOfEveryTypeAndSize) {
  const int ranks = GetParam();
  run_ranks(ranks, [&](Communicator& comm, int rank) {
    for (const DataType type : types_to_try()) {
      const Reduction mine = factor_of(type, rank);
      for (std::size_t count :
           {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{1001}, std::size_t{30011}}) {
        const auto where = [&] { return std::string(name_of(type)) + " " + std::to_string(count); };
        const Elements input(type, count, rank, 1);
        const Elements wanted = wanted_sum(type, count, ranks, 1);
        Elements send = input;
        Elements recv(type, count);
        comm.all_reduce(send.data(), recv.data(), count, type, mine);
        ASSERT_EQ(recv, wanted) << where();
        ASSERT_EQ(send, input) << "an input is never written";
        Stream stream = comm.state().device().stream();
        comm.all_reduce(send.data(), send.data(), count, type, mine, stream);
        stream.sync();
        ASSERT_EQ(send, wanted) << where();

        const int root = ranks - 1;
        send = input;
        comm.reduce(send.data(), rank == root ? send.data() : nullptr, count, type, mine, root);
        ASSERT_EQ(send, rank == root ? wanted : input) << where();

        const auto total = count * static_cast<std::size_t>(ranks);
        const auto own = count * static_cast<std::size_t>(rank);
        const Elements block = wanted_sum(type, total, ranks, 2).part(own, count);
        Elements wide(type, total, rank, 2);
        Group group;
        comm.reduce_scatter(wide.data(), recv.data(), count, type, mine, group);
        group.run();
        ASSERT_EQ(recv, block) << where();
        std::vector<std::size_t> counts(static_cast<std::size_t>(ranks), count);
        comm.reduce_scatter_v(wide.data(), wide.at(own), counts, type, mine);
        ASSERT_EQ(wide.part(own, count), block) << where();
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, PreMultiplied, ::testing::Values(1, 2, 3, 5, 9));

TEST(PreMultipliedCalls, DifferFromPlainSumsButNotByTheirFactor) {
  run_ranks(2, [](Communicator& comm, int rank) {
    std::vector<float> values(100, 1.0f);
    const Reduction scaled = Reduction::pre_mul_sum(0.5f);
    try {
      comm.all_reduce(values, rank == 0 ? Reduction(ReduceOp::sum) : scaled);
      ADD_FAILURE() << "a sum is no pre-multiplied sum";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("rank 0 called all_reduce(count 100, f32, sum)"),
                        HasSubstr("rank 1 called all_reduce(count 100, f32, pre-multiplied sum)")));
    }
  });
}

TEST(PreMultipliedCalls, RefuseFactorsThatTheTypeCannotHold) {
  run_ranks(1, [](Communicator& comm, int) {
    std::vector<std::int64_t> data(2, 5);
    const auto text_of = [&](DataType type, Reduction reduction) -> std::string {
      try {
        comm.all_reduce(data.data(), data.data(), 1, type, reduction);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        return error.what();
      }
      return "taken";
    };
    using R = Reduction;
    EXPECT_THAT(text_of(DataType::i32, R::pre_mul_sum(0.5)),
                HasSubstr("factor 0.5 of a pre-multiplied sum is no i32"));
    EXPECT_THAT(text_of(DataType::i8, R::pre_mul_sum(128)), HasSubstr("is no i8"));
    EXPECT_THAT(text_of(DataType::i8, R::pre_mul_sum(-129)), HasSubstr("is no i8"));
    EXPECT_THAT(text_of(DataType::u8, R::pre_mul_sum(256)), HasSubstr("is no u8"));
    EXPECT_THAT(text_of(DataType::u64, R::pre_mul_sum(-1)), HasSubstr("is no u64"));
    EXPECT_THAT(text_of(DataType::i64, R::pre_mul_sum(std::uint64_t{1} << 63)), HasSubstr("is no i64"));
    for (auto [type, factor] : {std::pair{DataType::i8, R::pre_mul_sum(-128)},
                                {DataType::i8, R::pre_mul_sum(127)},
                                {DataType::u8, R::pre_mul_sum(255)},
                                {DataType::u64, R::pre_mul_sum(std::numeric_limits<std::uint64_t>::max())},
                                {DataType::i64, R::pre_mul_sum(std::numeric_limits<std::int64_t>::min())},
                                {DataType::f16, R::pre_mul_sum(3)}})
      EXPECT_EQ(text_of(type, factor), "taken") << name_of(type) << " " << factor.factor();
  });
}

}  // namespace
}  // namespace tugline::comm::test

// SPDX-License-Identifier: Apache-2.0
// The timing loop of bench/peers gives no figure for a library whose results are wrong, whenever they are.
#include "peers/timing_loop.h"

#include <gmock/gmock.h>

namespace {

using peers::Case;
using peers::Collective;
using peers::Shape;

/// All-reduce of one rank, which is a copy, right or wrong in one way.
class Fake {
 public:
  int rank() const { return 0; }
  int size() const { return 1; }
  void barrier() { ++barriers; }
  void max(std::vector<std::uint64_t>&) {}
  peers::Places prepare(const Shape& shape) {
    shape_ = shape;
    return places_ = buffers_.make(shape.send_count, shape.recv_count);
  }
  void operate() {
    ++operations;
    bool stale = operations > stale_after && operations % 2 == 1;
    if (!stale && shape_.recv_count > 0)
      std::memcpy(places_.output, places_.input, shape_.recv_count * sizeof(float));
    if (operations == 1 && wrong_element < shape_.recv_count) places_.output[wrong_element] += 1;
    if (shape_.send_count > 0) inputs.push_back(places_.input[shape_.send_count - 1]);
  }

  int operations = 0;
  int barriers = 0;
  int stale_after = 1'000'000;
  std::size_t wrong_element = 1'000'000;
  std::vector<float> inputs;  // the last element of every operation

 private:
  peers::PrivateBuffers buffers_;
  Shape shape_;
  peers::Places places_;
};

const peers::Order& order() {
  static const peers::Order kOrder = peers::order_of({"1", "60", "0", "all_reduce:8"});
  return kOrder;
}

double measure(Fake& fake, Case wanted) {
  return peers::Loop<Fake>(fake, order()).measure(wanted);
}

std::string failure(Fake&& fake, Case wanted) {
  try {
    measure(fake, wanted);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "none";
}

TEST(TimingLoop, GivesAFigureForEverySize) {
  for (std::size_t bytes : {4U, 8U, 64U, 68U, 4096U}) {
    Fake fake;
    EXPECT_GT(measure(fake, {Collective::all_reduce, bytes}), 0) << bytes;
    EXPECT_GE(fake.operations, 11 + 2) << bytes;
  }
  Fake fake;
  EXPECT_GE(measure(fake, {Collective::barrier, 0}), 0);
}

TEST(TimingLoop, EveryOperationHasAnotherInput) {
  for (std::size_t bytes : {8U, 4096U}) {
    Fake fake;
    measure(fake, {Collective::all_reduce, bytes});
    for (std::size_t i = 1; i < fake.inputs.size(); ++i)
      ASSERT_NE(fake.inputs[i], fake.inputs[i - 1]) << bytes << " bytes, operation " << i;
  }
}

TEST(TimingLoop, OneWrongElementAnywhereIsFound) {
  for (std::size_t element : {0U, 1U, 777U, 1023U}) {
    Fake fake;
    fake.wrong_element = element;
    EXPECT_THAT(failure(std::move(fake), {Collective::all_reduce, 4096}),
                testing::AllOf(testing::HasSubstr("element " + std::to_string(element) + " is "),
                               testing::HasSubstr("\n  where: all_reduce of 4096 bytes, rank 0 of 1"),
                               testing::HasSubstr("\n  do: ")));
  }
}

TEST(TimingLoop, ResultsThatBecomeStaleAreFound) {
  for (std::size_t bytes : {8U, 4096U}) {
    Fake fake;
    fake.stale_after = 5;
    EXPECT_THAT(failure(std::move(fake), {Collective::all_reduce, bytes}), testing::HasSubstr("element "))
        << bytes;
  }
}

TEST(TimingLoop, LessThanAnElementPerRankIsRefused) {
  EXPECT_THAT(failure(Fake(), {Collective::all_gather, 3}), testing::HasSubstr("holds no element per rank"));
}

/// The input of rank r at index i is 100 r + i.
std::vector<float> expected(Collective collective, std::size_t bytes, int rank, int ranks) {
  auto shape = peers::shape_of({collective, bytes}, ranks);
  std::vector<float> all(shape.recv_count);
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = peers::expected(shape, rank, ranks, i, [](int r, std::size_t index) {
      return static_cast<float>(100 * r + static_cast<int>(index));
    });
  return all;
}

TEST(TimingLoop, KnowsWhatEveryCollectiveGives) {
  using testing::ElementsAre;
  EXPECT_THAT(expected(Collective::all_reduce, 8, 1, 3), ElementsAre(300, 303));
  EXPECT_THAT(expected(Collective::all_gather, 24, 1, 3), ElementsAre(0, 1, 100, 101, 200, 201));
  EXPECT_THAT(expected(Collective::reduce_scatter, 24, 1, 3), ElementsAre(306, 309));
  EXPECT_THAT(expected(Collective::broadcast, 8, 2, 3), ElementsAre(0, 1));
  EXPECT_THAT(expected(Collective::all_to_all, 24, 1, 3), ElementsAre(2, 3, 102, 103, 202, 203));
  EXPECT_THAT(expected(Collective::send_recv, 8, 0, 3), ElementsAre(200, 201));
  EXPECT_THAT(expected(Collective::barrier, 0, 0, 3), ElementsAre());
}

TEST(TimingLoop, ReadsItsCommandLine) {
  auto read = peers::order_of({"2.5", "30", "0,3", "barrier:0", "send_recv:64"});
  EXPECT_DOUBLE_EQ(read.budget_ns, 2.5e6);
  EXPECT_EQ(read.limit_s, 30U);
  EXPECT_THAT(read.cores, testing::ElementsAre(0, 3));
  ASSERT_EQ(read.cases.size(), 2U);
  EXPECT_EQ(read.cases[1].collective, Collective::send_recv);
  EXPECT_EQ(read.cases[1].bytes, 64U);
  EXPECT_THROW(peers::order_of({"1", "1", "0"}), std::runtime_error);
  EXPECT_THROW(peers::order_of({"1", "1", "0", "scatter:8"}), std::runtime_error);
  EXPECT_THROW(peers::order_of({"1", "1", "x", "barrier:0"}), std::runtime_error);
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// Every collective gives what its definition says: for every type and operator, in place and out of place,
// for odd numbers of ranks, and for sizes on both sides of every protocol's limits.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "comm/kernels_host/stream.h"
#include "elements.h"
#include "local_job.h"

namespace tugline::comm::test {
namespace {

struct Case {
  int ranks;
  std::size_t count;
};

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return std::to_string(info.param.ranks) + "ranks" + std::to_string(info.param.count);
}

/// Many chunks. ThreadSanitizer looks at every access: a tenth are many to it too.
#if defined(__SANITIZE_THREAD__)
constexpr std::size_t kLong = 300001;
#else
constexpr std::size_t kLong = 3000001;
#endif

class Collectives : public ::testing::TestWithParam<Case> {};

enum class Form { out_of_place, in_place };
constexpr Form kForms[] = {Form::out_of_place, Form::in_place};

TEST_P(Collectives, AllReduceOfFloats) {
  const auto [ranks, count] = GetParam();
  run_ranks(ranks, [&, ranks = ranks, count = count](Communicator& comm, int rank) {
    for (int round = 0; round < 3; ++round) {
      for (auto form : kForms) {
        Elements mine(DataType::f32, count, rank, round);
        Elements result(DataType::f32, count);
        if (form == Form::in_place) result = mine;
        comm.all_reduce(form == Form::in_place ? result.data() : mine.data(), result.data(), count,
                        DataType::f32, ReduceOp::sum);
        ASSERT_EQ(result, reduced(DataType::f32, count, ReduceOp::sum, ranks, round)) << "round " << round;
      }
    }
  });
}

TEST_P(Collectives, AllGather) {
  const auto [ranks, count] = GetParam();
  run_ranks(ranks, [&, ranks = ranks, count = count](Communicator& comm, int rank) {
    for (auto form : kForms) {
      Elements mine(DataType::i32, count, rank, 1);
      Elements result(DataType::i32, count * static_cast<std::size_t>(ranks));
      const void* send = mine.data();
      if (form == Form::in_place) {
        result.paste(mine, count * static_cast<std::size_t>(rank));
        send = result.at(count * static_cast<std::size_t>(rank));
      }
      comm.all_gather(send, result.data(), count, DataType::i32);
      for (int from = 0; from < ranks; ++from)
        ASSERT_EQ(result.part(count * static_cast<std::size_t>(from), count),
                  Elements(DataType::i32, count, from, 1))
            << from;
    }
  });
}

TEST_P(Collectives, ReduceScatter) {
  const auto [ranks, count] = GetParam();
  run_ranks(ranks, [&, ranks = ranks, count = count](Communicator& comm, int rank) {
    const auto total = count * static_cast<std::size_t>(ranks);
    for (auto form : kForms) {
      Elements mine(DataType::i64, total, rank, 2);
      Elements result(DataType::i64, count);
      void* recv = form == Form::in_place ? mine.at(count * static_cast<std::size_t>(rank)) : result.data();
      comm.reduce_scatter(mine.data(), recv, count, DataType::i64, ReduceOp::sum);
      if (form == Form::in_place) result = mine.part(count * static_cast<std::size_t>(rank), count);
      ASSERT_EQ(result, reduced(DataType::i64, total, ReduceOp::sum, ranks, 2)
                            .part(count * static_cast<std::size_t>(rank), count));
    }
  });
}

TEST_P(Collectives, BroadcastFromEveryRoot) {
  const auto [ranks, count] = GetParam();
  run_ranks(ranks, [&, ranks = ranks, count = count](Communicator& comm, int rank) {
    for (int root = 0; root < ranks; ++root) {
      for (auto form : kForms) {
        Elements buffer(DataType::u8, count, rank, root);
        Elements result(DataType::u8, count);
        if (form == Form::in_place) result = buffer;
        comm.broadcast(form == Form::in_place ? result.data() : buffer.data(), result.data(), count,
                       DataType::u8, root);
        ASSERT_EQ(result, Elements(DataType::u8, count, root, root));
      }
    }
  });
}

TEST_P(Collectives, ReduceToEveryRoot) {
  const auto [ranks, count] = GetParam();
  run_ranks(ranks, [&, ranks = ranks, count = count](Communicator& comm, int rank) {
    for (int root = 0; root < ranks; ++root) {
      for (auto form : kForms) {
        Elements mine(DataType::f32, count, rank, root);
        Elements result(DataType::f32, count);
        if (form == Form::in_place) result = mine;
        void* into = rank == root ? result.data() : nullptr;
        comm.reduce(form == Form::in_place ? result.data() : mine.data(), into, count, DataType::f32,
                    ReduceOp::sum, root);
        if (rank == root) {
          ASSERT_EQ(result, reduced(DataType::f32, count, ReduceOp::sum, ranks, root));
        } else if (form == Form::in_place) {
          ASSERT_EQ(result, mine) << "an input is never written";
        }
      }
    }
  });
}

TEST_P(Collectives, GatherToEveryRootAndScatterBack) {
  const auto [ranks, count] = GetParam();
  run_ranks(ranks, [&, ranks = ranks, count = count](Communicator& comm, int rank) {
    const auto total = count * static_cast<std::size_t>(ranks);
    const auto own = count * static_cast<std::size_t>(rank);
    for (int root = 0; root < ranks; ++root) {
      for (auto form : kForms) {
        const bool in_place = form == Form::in_place && rank == root;
        Elements mine(DataType::u8, count, rank, root);
        Elements all(DataType::u8, total);
        if (in_place) all.paste(mine, own);
        comm.gather(in_place ? all.at(own) : mine.data(), rank == root ? all.data() : nullptr, count,
                    DataType::u8, root);
        for (int from = 0; rank == root && from < ranks; ++from)
          ASSERT_EQ(all.part(count * static_cast<std::size_t>(from), count),
                    Elements(DataType::u8, count, from, root));

        Elements back(DataType::u8, count);
        comm.scatter(rank == root ? all.data() : nullptr, in_place ? all.at(own) : back.data(), count,
                     DataType::u8, root);
        ASSERT_EQ(in_place ? all.part(own, count) : back, mine);
      }
    }
  });
}

TEST_P(Collectives, AllToAll) {
  const auto [ranks, count] = GetParam();
  run_ranks(ranks, [&, ranks = ranks, count = count](Communicator& comm, int rank) {
    const auto total = count * static_cast<std::size_t>(ranks);
    for (auto form : kForms) {
      Elements mine(DataType::f64, total, rank, 4);
      Elements result(DataType::f64, total);
      if (form == Form::in_place) result = mine;
      comm.all_to_all(form == Form::in_place ? result.data() : mine.data(), result.data(), count,
                      DataType::f64);
      for (int from = 0; from < ranks; ++from)
        ASSERT_EQ(
            result.part(count * static_cast<std::size_t>(from), count),
            Elements(DataType::f64, total, from, 4).part(count * static_cast<std::size_t>(rank), count));
    }
  });
}

TEST_P(Collectives, SendAndReceiveAroundARing) {
  const auto [ranks, count] = GetParam();
  if (ranks == 1) GTEST_SKIP() << "a ring needs two ranks; messages to oneself have their own test";
  run_ranks(ranks, [&, ranks = ranks, count = count](Communicator& comm, int rank) {
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    for (int round = 0; round < 4; ++round) {
      Elements mine(DataType::f32, count, rank, round);
      Elements result(DataType::f32, count);
      Group group;
      comm.send(mine.data(), count, DataType::f32, next, group);
      comm.recv(result.data(), count, DataType::f32, previous, group);
      group.run();
      ASSERT_EQ(result, Elements(DataType::f32, count, previous, round));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, Collectives,
                         ::testing::Values(Case{1, 5}, Case{2, 0}, Case{2, 1}, Case{2, 14}, Case{2, 15},
                                           Case{2, 128}, Case{2, 129}, Case{2, 256}, Case{2, 257},
                                           Case{2, 1000}, Case{2, 65536}, Case{2, kLong}, Case{3, 1},
                                           Case{3, 7}, Case{3, 40000}, Case{4, 2048}, Case{5, 3},
                                           Case{5, 70001}, Case{7, 12}, Case{7, 9999}, Case{8, 1},
                                           Case{8, 32}, Case{8, 255}, Case{16, 128}, Case{16, 129},
                                           Case{8, 16384}, Case{9, 333}),
                         case_name);

// Whether a call is in place is each rank's own business: their plans must fit together all the same.
TEST(Forms, RanksMayMixThem) {
  for (int ranks : {2, 3}) {
    for (std::size_t count : {std::size_t{2}, std::size_t{999}, std::size_t{70001}}) {
      run_ranks(ranks, [&](Communicator& comm, int rank) {
        const bool in_place = rank % 2 == 0;
        const auto own = count * static_cast<std::size_t>(rank);
        const auto total = count * static_cast<std::size_t>(ranks);

        Elements sum(DataType::f32, count, rank, 1), into(DataType::f32, count);
        comm.all_reduce(sum.data(), in_place ? sum.data() : into.data(), count, DataType::f32, ReduceOp::sum);
        ASSERT_EQ(in_place ? sum : into, reduced(DataType::f32, count, ReduceOp::sum, ranks, 1));

        Elements mine(DataType::i32, count, rank, 2), gathered(DataType::i32, total);
        gathered.paste(mine, own);
        comm.all_gather(in_place ? gathered.at(own) : mine.data(), gathered.data(), count, DataType::i32);
        for (int from = 0; from < ranks; ++from)
          ASSERT_EQ(gathered.part(count * static_cast<std::size_t>(from), count),
                    Elements(DataType::i32, count, from, 2));

        Elements wide(DataType::i32, total, rank, 3), block(DataType::i32, count);
        comm.reduce_scatter(wide.data(), in_place ? wide.at(own) : block.data(), count, DataType::i32,
                            ReduceOp::sum);
        ASSERT_EQ(in_place ? wide.part(own, count) : block,
                  reduced(DataType::i32, total, ReduceOp::sum, ranks, 3).part(own, count));

        Elements swapped(DataType::f64, total, rank, 4), got(DataType::f64, total);
        comm.all_to_all(swapped.data(), in_place ? swapped.data() : got.data(), count, DataType::f64);
        for (int from = 0; from < ranks; ++from)
          ASSERT_EQ((in_place ? swapped : got).part(count * static_cast<std::size_t>(from), count),
                    Elements(DataType::f64, total, from, 4).part(own, count));
      });
    }
  }
}

class TypesAndOperators : public ::testing::TestWithParam<int> {};

TEST_P(TypesAndOperators, AllReduceReduceScatterAndReduce) {
  const int ranks = GetParam();
  run_ranks(ranks, [&](Communicator& comm, int rank) {
    for (const DataType type : types_to_try()) {
      for (int op_index = 0; op_index < kReduceOpCount; ++op_index) {
        const auto op = static_cast<ReduceOp>(op_index);
        for (std::size_t count : {std::size_t{3}, std::size_t{257}, std::size_t{20011}}) {
          Elements mine(type, count, rank, op_index);
          Elements result(type, count);
          comm.all_reduce(mine.data(), result.data(), count, type, op);
          ASSERT_EQ(result, reduced(type, count, op, ranks, op_index))
              << name_of(type) << " " << name_of(op) << " " << count;
          const auto total = count * static_cast<std::size_t>(ranks);
          Elements wide(type, total, rank, op_index);
          comm.reduce_scatter(wide.data(), result.data(), count, type, op);
          ASSERT_EQ(
              result,
              reduced(type, total, op, ranks, op_index).part(count * static_cast<std::size_t>(rank), count))
              << name_of(type) << " " << name_of(op) << " " << count;
          comm.reduce(mine.data(), rank == ranks - 1 ? mine.data() : nullptr, count, type, op, ranks - 1);
          if (rank == ranks - 1) {
            ASSERT_EQ(mine, reduced(type, count, op, ranks, op_index))
                << name_of(type) << " " << name_of(op) << " " << count;
          }
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, TypesAndOperators, ::testing::Values(1, 2, 3, 5, 9));

class Large : public ::testing::TestWithParam<int> {};

// Results that go past the caches. The buffers begin in the middle of a cache line.
TEST_P(Large, ResultsAreStreamedWhole) {
  const int ranks = GetParam();
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t count = stream_from_bytes() / sizeof(float) + 1001;
  const auto value = [](std::size_t rank, std::size_t i) {
    return static_cast<float>((i * 7 + rank * 13) % 1001);
  };
  const auto sum = [&](std::size_t i) {
    float total = 0;
    for (std::size_t rank = 0; rank < n; ++rank) total += value(rank, i);
    return total;
  };
  // The number of elements that are not as they should be.
  const auto wrong = [](const auto& data, std::size_t first, std::size_t elements, auto expected) {
    std::size_t found = 0;
    for (std::size_t i = 0; i < elements; ++i) found += data[first + i] != expected(i) ? 1 : 0;
    return found;
  };
  run_ranks(ranks, [&](Communicator& comm, int self) {
    const auto rank = static_cast<std::size_t>(self);
    std::vector<float> input(count + 1), output(count + 1);
    for (std::size_t i = 0; i < count; ++i) input[i + 1] = value(rank, i);
    comm.all_reduce(input.data() + 1, output.data() + 1, count, DataType::f32, ReduceOp::sum);
    EXPECT_EQ(wrong(output, 1, count, sum), 0U);
    auto in_place = input;
    comm.all_reduce(in_place.data() + 1, in_place.data() + 1, count, DataType::f32, ReduceOp::avg);
    EXPECT_EQ(wrong(in_place, 1, count, [&](std::size_t i) { return sum(i) / static_cast<float>(ranks); }),
              0U);

    const std::size_t block = count / n;
    comm.all_gather(input.data() + 1, output.data() + 1, block, DataType::f32);
    for (std::size_t from = 0; from < n; ++from)
      EXPECT_EQ(wrong(output, 1 + from * block, block, [&](std::size_t i) { return value(from, i); }), 0U);
    comm.all_to_all(input.data() + 1, output.data() + 1, block, DataType::f32);
    for (std::size_t from = 0; from < n; ++from)
      EXPECT_EQ(wrong(output, 1 + from * block, block,
                      [&](std::size_t i) { return value(from, rank * block + i); }),
                0U);

    const auto bf16 = [](float number) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &number, sizeof bits);
      return static_cast<std::uint16_t>(bits >> 16);  // small integers are exact
    };
    std::vector<std::uint16_t> half(count * 2 + 1), total(count * 2 + 1);
    for (std::size_t i = 0; i < count * 2; ++i) half[i + 1] = bf16(static_cast<float>(i % 5 + rank));
    comm.all_reduce(half.data() + 1, total.data() + 1, count * 2, DataType::bf16, ReduceOp::sum);
    EXPECT_EQ(wrong(total, 1, count * 2,
                    [&](std::size_t i) { return bf16(static_cast<float>(n * (i % 5) + n * (n - 1) / 2)); }),
              0U);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Large, ::testing::Values(2, 3));

// Two ranks trade their scratch from operation to operation, each half on its own.
TEST(TradedScratch, OperationsOfAllSizesFollowEachOther) {
  run_ranks(2, [&](Communicator& comm, int rank) {
    for (int round = 0; round < 400; ++round) {
      const auto choice =
          static_cast<unsigned>(Elements::value(static_cast<std::size_t>(round), 7, 1) * 3 + round);
      const std::size_t count = std::size_t{1} << (choice * 7 % 15);
      Elements mine(DataType::i32, count * 2, rank, round), result(DataType::i32, count * 2);
      switch (choice % 4) {
        case 0:
          comm.all_reduce(mine.data(), result.data(), count, DataType::i32, ReduceOp::sum);
          ASSERT_EQ(result.part(0, count), reduced(DataType::i32, count, ReduceOp::sum, 2, round));
          break;
        case 1:
          comm.all_gather(mine.data(), result.data(), count, DataType::i32);
          for (int from : {0, 1})
            ASSERT_EQ(result.part(static_cast<std::size_t>(from) * count, count),
                      Elements(DataType::i32, count * 2, from, round).part(0, count));
          break;
        case 2:
          if (round % 8 != 0) comm.barrier();
          comm.broadcast(mine.data(), mine.data(), count, DataType::i32, round % 2);
          ASSERT_EQ(mine.part(0, count), Elements(DataType::i32, count, round % 2, round));
          break;
        default:
          comm.reduce_scatter(mine.data(), result.data(), count, DataType::i32, ReduceOp::sum);
          ASSERT_EQ(result.part(0, count), reduced(DataType::i32, count * 2, ReduceOp::sum, 2, round)
                                               .part(static_cast<std::size_t>(rank) * count, count));
      }
    }
  });
}

TEST(Barrier, NobodyLeavesBeforeEverybodyCame) {
  constexpr int kRanks = 5;
  std::atomic<int> arrived{0};
  run_ranks(kRanks, [&](Communicator& comm, int) {
    for (int round = 1; round <= 200; ++round) {
      arrived.fetch_add(1);
      comm.barrier();
      ASSERT_GE(arrived.load(), round * kRanks);
      comm.barrier();
    }
  });
}

TEST(Broadcast, ARootThatRunsAheadOverwritesNothing) {
  run_ranks(3, [&](Communicator& comm, int rank) {
    for (int round = 0; round < 300; ++round) {
      const std::size_t count = round % 3 == 0 ? 4 : 5000;
      Elements buffer(DataType::i32, count, rank, round);
      comm.broadcast(buffer.data(), buffer.data(), count, DataType::i32, 0);
      ASSERT_EQ(buffer, Elements(DataType::i32, count, 0, round));
    }
  });
}

TEST(Deterministic, FloatSumsAreBitIdenticalOnAllRanksAndFromRunToRun) {
  constexpr std::size_t kCount = 30011;
  std::vector<std::vector<float>> first(4), second(4);
  for (auto* results : {&first, &second}) {
    run_ranks(4, [&](Communicator& comm, int rank) {
      std::vector<float> values(kCount);
      for (std::size_t i = 0; i < kCount; ++i)
        values[i] = 1.0f / static_cast<float>(i + 1 + static_cast<std::size_t>(rank) * 7919);
      comm.all_reduce(std::span<float>(values), ReduceOp::sum);
      (*results)[static_cast<std::size_t>(rank)] = values;
    });
  }
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(std::memcmp(first[static_cast<std::size_t>(rank)].data(), first[0].data(), kCount * 4), 0);
    EXPECT_EQ(std::memcmp(second[static_cast<std::size_t>(rank)].data(), first[0].data(), kCount * 4), 0);
  }
}

}  // namespace
}  // namespace tugline::comm::test

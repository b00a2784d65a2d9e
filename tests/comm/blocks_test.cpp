// SPDX-License-Identifier: Apache-2.0
// Collectives whose blocks differ in size: what they give, in every form and to every target, and what is
// told where ranks do not mean the same sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "elements.h"
#include "local_job.h"

namespace tugline::comm::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Counts = std::vector<std::size_t>;

struct Case {
  int ranks;
  std::size_t scale;
};

/// Many chunks. ThreadSanitizer looks at every access: a tenth are many to it too.
#if defined(__SANITIZE_THREAD__)
constexpr std::size_t kLong = 7001;
#else
constexpr std::size_t kLong = 70001;
#endif

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return std::to_string(info.param.ranks) + "ranks" + std::to_string(info.param.scale);
}

/// Sizes from nothing to two and a half times the scale, odd ones among them; alike both ways.
std::size_t between(int a, int b, std::size_t scale) {
  const auto salt = static_cast<std::size_t>(a * b + a + b);
  return scale * (salt % 6) / 2 + (salt % 3 == 1 ? 1 : 0);
}

Counts counts_of(int ranks, std::size_t scale) {
  Counts counts;
  for (int rank = 0; rank < ranks; ++rank) counts.push_back(between(rank, 1, scale));
  return counts;
}

std::size_t before(const Counts& counts, int rank) {
  std::size_t sum = 0;
  for (int i = 0; i < rank; ++i) sum += counts[static_cast<std::size_t>(i)];
  return sum;
}

std::size_t sum_of(const Counts& counts) {
  return before(counts, static_cast<int>(counts.size()));
}

/// Makes the call on the caller's thread, on a stream, and in a group; `check` looks at each result.
void to_every_target(Communicator& comm, const std::function<void(Target)>& call,
                     const std::function<void()>& check) {
  call({});
  check();
  Stream stream = comm.state().device().stream();
  call(stream);
  stream.sync();
  check();
  Group group;
  call(group);
  group.run();
  check();
}

class Blocks : public ::testing::TestWithParam<Case> {};

TEST_P(Blocks, AllGather) {
  const auto [ranks, scale] = GetParam();
  const Counts counts = counts_of(ranks, scale);
  run_ranks(ranks, [&, ranks = ranks](Communicator& comm, int rank) {
    const auto own = counts[static_cast<std::size_t>(rank)];
    for (bool in_place : {false, true}) {
      Elements mine(DataType::i32, own, rank, 1);
      Elements all(DataType::i32, sum_of(counts));
      if (in_place) all.paste(mine, before(counts, rank));
      to_every_target(
          comm,
          [&](Target target) {
            comm.all_gather_v(in_place ? all.at(before(counts, rank)) : mine.data(), all.data(), counts,
                              DataType::i32, target);
          },
          [&] {
            for (int from = 0; from < ranks; ++from)
              ASSERT_EQ(all.part(before(counts, from), counts[static_cast<std::size_t>(from)]),
                        Elements(DataType::i32, counts[static_cast<std::size_t>(from)], from, 1))
                  << from;
          });
    }
  });
}

TEST_P(Blocks, ReduceScatter) {
  const auto [ranks, scale] = GetParam();
  const Counts counts = counts_of(ranks, scale);
  run_ranks(ranks, [&, ranks = ranks](Communicator& comm, int rank) {
    const auto total = sum_of(counts);
    const auto own = counts[static_cast<std::size_t>(rank)];
    for (auto op : {ReduceOp::sum, ReduceOp::avg}) {
      const auto wanted = reduced(DataType::f32, total, op, ranks, 2).part(before(counts, rank), own);
      Elements mine(DataType::f32, total, rank, 2);
      const Elements input = mine;
      Elements result(DataType::f32, own);
      to_every_target(
          comm,
          [&](Target target) {
            comm.reduce_scatter_v(mine.data(), result.data(), counts, DataType::f32, op, target);
          },
          [&] {
            ASSERT_EQ(result, wanted);
            ASSERT_EQ(mine, input) << "an input is never written";
          });
      comm.reduce_scatter_v(mine.data(), mine.at(before(counts, rank)), counts, DataType::f32, op);
      ASSERT_EQ(mine.part(before(counts, rank), own), wanted);
    }
  });
}

TEST_P(Blocks, AllToAll) {
  const auto [ranks, scale] = GetParam();
  run_ranks(ranks, [&, ranks = ranks, scale = scale](Communicator& comm, int rank) {
    // Out of place: other sizes both ways, blocks in reverse order with gaps between them.
    Counts send, recv, send_at(static_cast<std::size_t>(ranks)), recv_at(static_cast<std::size_t>(ranks));
    for (int peer = 0; peer < ranks; ++peer) {
      send.push_back(between(rank + (peer < rank ? 1 : 0), peer, scale));
      recv.push_back(between(peer + (rank < peer ? 1 : 0), rank, scale));
    }
    std::size_t send_end = 0, recv_end = 0;
    for (std::size_t peer = send.size(); peer-- > 0;) {
      send_at[peer] = send_end + 1;
      recv_at[peer] = recv_end + 3;
      send_end = send_at[peer] + send[peer];
      recv_end = recv_at[peer] + recv[peer];
    }
    auto block = [](int from, int to, std::size_t count) { return Elements(DataType::i64, count, from, to); };
    Elements mine(DataType::i64, send_end);
    for (int peer = 0; peer < ranks; ++peer)
      mine.paste(block(rank, peer, send[static_cast<std::size_t>(peer)]),
                 send_at[static_cast<std::size_t>(peer)]);
    Elements result(DataType::i64, recv_end);
    Elements wanted = result;
    for (int peer = 0; peer < ranks; ++peer)
      wanted.paste(block(peer, rank, recv[static_cast<std::size_t>(peer)]),
                   recv_at[static_cast<std::size_t>(peer)]);
    to_every_target(
        comm,
        [&](Target target) {
          comm.all_to_all_v(mine.data(), send, send_at, result.data(), recv, recv_at, DataType::i64, target);
        },
        [&] { ASSERT_EQ(result, wanted) << "also between the blocks"; });

    Counts both, at;
    std::size_t end = 0;
    for (int peer = 0; peer < ranks; ++peer) {
      both.push_back(between(rank, peer, scale));
      at.push_back(end);
      end += both.back() + 2;
    }
    Elements swapped(DataType::i64, end);
    Elements back = swapped;
    for (int peer = 0; peer < ranks; ++peer) {
      const auto p = static_cast<std::size_t>(peer);
      swapped.paste(block(rank, peer, both[p]), at[p]);
      back.paste(block(peer, rank, both[p]), at[p]);
    }
    comm.all_to_all_v(swapped.data(), both, at, swapped.data(), both, at, DataType::i64);
    ASSERT_EQ(swapped, back);
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, Blocks,
                         ::testing::Values(Case{1, 7}, Case{2, 0}, Case{2, 1}, Case{2, 1001}, Case{2, 400001},
                                           Case{3, 1}, Case{3, 30001}, Case{4, 0}, Case{4, 5}, Case{5, 999},
                                           Case{6, 20000}, Case{7, 3}, Case{8, 5000}, Case{9, kLong}),
                         case_name);

TEST(BlocksOfEveryType, ReduceScatterByEveryOperator) {
  run_ranks(3, [](Communicator& comm, int rank) {
    for (const DataType type : types_to_try()) {
      for (int op_index = 0; op_index < kReduceOpCount; ++op_index) {
        const auto op = static_cast<ReduceOp>(op_index);
        for (std::size_t scale : {std::size_t{2}, std::size_t{3001}}) {
          const Counts counts = counts_of(3, scale);
          Elements mine(type, sum_of(counts), rank, op_index);
          Elements result(type, counts[static_cast<std::size_t>(rank)]);
          comm.reduce_scatter_v(mine.data(), result.data(), counts, type, op);
          ASSERT_EQ(result, reduced(type, sum_of(counts), op, 3, op_index)
                                .part(before(counts, rank), counts[static_cast<std::size_t>(rank)]))
              << name_of(type) << " " << name_of(op) << " " << scale;
        }
      }
    }
  });
}

TEST(BlocksChange, FromCallToCall) {
  // Plans are kept by their sizes: other sizes of the same sum are another plan.
  run_ranks(2, [](Communicator& comm, int rank) {
    for (int round = 0; round < 20; ++round) {
      const Counts counts = round % 2 == 0 ? Counts{700, 301} : Counts{301, 700};
      const auto own = counts[static_cast<std::size_t>(rank)];
      Elements mine(DataType::u8, own, rank, round);
      Elements all(DataType::u8, 1001);
      comm.all_gather_v(mine.data(), all.data(), counts, DataType::u8);
      for (int from = 0; from < 2; ++from)
        ASSERT_EQ(all.part(before(counts, from), counts[static_cast<std::size_t>(from)]),
                  Elements(DataType::u8, counts[static_cast<std::size_t>(from)], from, round));
      const Counts at = round % 4 < 2 ? Counts{0, 700} : Counts{700, 0};
      const Counts sizes{301, 301};
      Elements out(DataType::u8, 1001, rank, round), in(DataType::u8, 1001);
      comm.all_to_all_v(out.data(), sizes, at, in.data(), sizes, at, DataType::u8);
      for (int from = 0; from < 2; ++from)
        ASSERT_EQ(in.part(at[static_cast<std::size_t>(from)], 301),
                  Elements(DataType::u8, 1001, from, round).part(at[static_cast<std::size_t>(rank)], 301));
    }
  });
}

/// The texts of the mismatch that every rank is told.
std::vector<std::string> mismatches(int ranks, const std::function<void(Communicator&, int)>& body) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](Communicator& comm, int rank) {
    try {
      body(comm, rank);
      ADD_FAILURE() << "rank " << rank << " got no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
      texts[static_cast<std::size_t>(rank)] = error.what();
    }
  });
  return texts;
}

TEST(BlocksMismatch, NamesTheRankAndBothCounts) {
  for (std::size_t scale : {std::size_t{2}, std::size_t{20000}}) {
    const auto texts = mismatches(3, [&](Communicator& comm, int rank) {
      Counts counts{scale, scale + 1, scale + 2};
      if (rank == 1) counts[2] = scale - 1;
      std::vector<float> send(scale + 2), recv(3 * scale + 3);
      comm.all_gather_v(send.data(), recv.data(), counts, DataType::f32);
    });
    for (const auto& text : texts)
      EXPECT_THAT(
          text,
          AllOf(
              HasSubstr("rank 1 called all_gather_v(count " + std::to_string(scale - 1) + " of rank 2, f32)"),
              HasSubstr("called all_gather_v(count " + std::to_string(scale + 2) + " of rank 2, f32)")));
  }
}

TEST(BlocksMismatch, OfAPairIsToldToEveryRank) {
  // What rank 0 sends to rank 2, and what rank 2 expects.
  struct Pair {
    std::size_t sent, expected;
  };
  for (const auto& [sent, expected] :
       {Pair{5, 6}, Pair{0, 6}, Pair{5, 0}, Pair{90000, 90001}, Pair{0, 90000}, Pair{90000, 0}}) {
    const auto texts = mismatches(4, [&, sent = sent, expected = expected](Communicator& comm, int rank) {
      Counts send(4, 3), recv(4, 3), at{0, 100000, 200000, 300000};
      if (rank == 0) send[2] = sent;
      if (rank == 2) recv[0] = expected;
      std::vector<float> from(400000), to(400000);
      comm.all_to_all_v(from.data(), send, at, to.data(), recv, at, DataType::f32);
    });
    for (const auto& text : texts)
      EXPECT_THAT(text, AllOf(HasSubstr("rank 0 called all_to_all_v(count " + std::to_string(sent) +
                                        " to rank 2, f32)"),
                              HasSubstr("rank 2 called all_to_all_v(count " + std::to_string(expected) +
                                        " from rank 0, f32)")));
  }
}

TEST(BlocksMismatch, OfOtherKindsIsNamedToo) {
  const auto texts = mismatches(2, [](Communicator& comm, int rank) {
    std::vector<float> send(20), recv(20);
    const Counts counts{3, 4};
    if (rank == 0)
      comm.reduce_scatter_v(send.data(), recv.data(), counts, DataType::f32, ReduceOp::sum);
    else
      comm.reduce_scatter_v(send.data(), recv.data(), counts, DataType::f32, ReduceOp::max);
  });
  for (const auto& text : texts)
    EXPECT_THAT(text, AllOf(HasSubstr("rank 0 called reduce_scatter_v(f32, sum)"),
                            HasSubstr("rank 1 called reduce_scatter_v(f32, max)")));
}

TEST(BlocksArguments, AreCheckedAndNamed) {
  run_ranks(2, [](Communicator& comm, int rank) {
    std::vector<float> values(100);
    float* data = values.data();
    auto text_of = [&](auto call) -> std::string {
      try {
        call();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        return error.what();
      }
      return "no error";
    };
    auto gather = [&](const Counts& counts, float* send, float* recv) {
      return text_of([&] { comm.all_gather_v(send, recv, counts, DataType::f32); });
    };
    EXPECT_THAT(gather({1}, data, data + 50), HasSubstr("counts has 1 values for 2 ranks"));
    EXPECT_THAT(gather({1, static_cast<std::size_t>(-1)}, data, data + 50), HasSubstr("counts[1] = "));
    EXPECT_THAT(gather({4, 4}, nullptr, data), HasSubstr("send is null with 16 bytes"));
    EXPECT_THAT(gather({4, 4}, data, data + 1), HasSubstr("overlap"));
    auto exchange = [&](const Counts& send, const Counts& recv, const Counts& at) {
      return text_of([&] { comm.all_to_all_v(data, send, at, data + 50, recv, at, DataType::f32); });
    };
    EXPECT_THAT(exchange({1, 1}, {1, 1}, {0}), HasSubstr("send_displacements has 1 values for 2 ranks"));
    EXPECT_THAT(exchange({4, 4}, {4, 4}, {0, 3}), HasSubstr("the blocks of ranks 0 and 1 overlap in recv"));
    Counts other{4, 4};
    other[static_cast<std::size_t>(rank)] = 3;
    EXPECT_THAT(exchange({4, 4}, other, {0, 5}), HasSubstr("sends 4 elements to itself and expects 3"));
  });
}

}  // namespace
}  // namespace tugline::comm::test

// SPDX-License-Identifier: Apache-2.0
// Collectives with blocks of different sizes between buffers that all ranks can reach: ranks as threads of
// this process, which reach all memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "comm/state.h"
#include "local_job.h"

namespace tugline::comm::test {
namespace {

std::int32_t value(int rank, std::size_t index) {
  return static_cast<std::int32_t>(index * 3 + static_cast<std::size_t>(rank) * 100'003);
}

void run_threads(int ranks, const std::function<void(Communicator&, int)>& body) {
  LocalJob job(ranks);
  job.are_threads = true;
  run_ranks(job, body);
}

TEST(DirectBlocks, GatherAndReduceCopyNothing) {
  for (const int ranks : {2, 3, 5}) {
    run_threads(ranks, [ranks](Communicator& comm, int rank) {
      // One rank has nothing.
      std::vector<std::size_t> counts;
      std::vector<std::size_t> begins;
      std::size_t sum = 0;
      for (int peer = 0; peer < ranks; ++peer) {
        begins.push_back(sum);
        counts.push_back(peer == 1 ? 0 : 3000 + static_cast<std::size_t>(peer) * 1001);
        sum += counts.back();
      }
      const auto own = static_cast<std::size_t>(rank);
      for (int round = 0; round < 3; ++round) {
        std::vector<std::int32_t> block(counts[own]);
        for (std::size_t i = 0; i < block.size(); ++i)
          block[i] = value(rank, i + static_cast<std::size_t>(round));
        std::vector<std::int32_t> all(sum, -1);
        comm.all_gather_v(block.data(), all.data(), counts, DataType::i32);
        for (int peer = 0; peer < ranks; ++peer)
          for (std::size_t i = 0; i < counts[static_cast<std::size_t>(peer)]; ++i)
            ASSERT_EQ(all[begins[static_cast<std::size_t>(peer)] + i],
                      value(peer, i + static_cast<std::size_t>(round)));

        for (std::size_t i = 0; i < sum; ++i) all[i] = value(rank, i);
        comm.reduce_scatter_v(all.data(), block.data(), counts, DataType::i32, ReduceOp::sum);
        for (std::size_t i = 0; i < block.size(); ++i) {
          std::int32_t expected = 0;
          for (int peer = 0; peer < ranks; ++peer) expected += value(peer, begins[own] + i);
          ASSERT_EQ(block[i], expected);
        }
      }
      EXPECT_EQ(comm.state().direct_operations(), 6u);
    });
  }
}

// Every pair has a size of its own, some nothing; blocks lie with gaps, in an order that differs from rank to
// rank, and from call to call.
TEST(DirectBlocks, PairsFindTheirBlocksWhereTheOthersHaveThem) {
  for (const int ranks : {2, 3, 5}) {
    run_threads(ranks, [ranks](Communicator& comm, int rank) {
      const auto n = static_cast<std::size_t>(ranks);
      const auto count_of = [](int from, int to, int round) {
        if (round == 3 && (from == 1 || to == 1)) return std::size_t{0};  // one rank has nothing at all
        return static_cast<std::size_t>((from * 5 + to * 3 + round) % 4) * 700;
      };
      for (int round = 0; round < 4; ++round) {
        std::vector<std::size_t> send(n), recv(n), send_at(n), recv_at(n);
        std::size_t sent = 0;
        std::size_t received = 0;
        for (int step = 0; step < ranks; ++step) {
          // Rank by rank another order.
          const auto peer = static_cast<std::size_t>((step + rank + round) % ranks);
          send[peer] = count_of(rank, static_cast<int>(peer), round);
          recv[peer] = count_of(static_cast<int>(peer), rank, round);
          send_at[peer] = sent + 3;
          recv_at[peer] = received + 1;
          sent = send_at[peer] + send[peer];
          received = recv_at[peer] + recv[peer];
        }
        std::vector<std::int32_t> out(sent + 8, -7);
        std::vector<std::int32_t> in(received + 8, -9);
        for (std::size_t peer = 0; peer < n; ++peer)
          for (std::size_t i = 0; i < send[peer]; ++i)
            out[send_at[peer] + i] = value(rank, i) ^ static_cast<std::int32_t>(peer);
        comm.all_to_all_v(out.data(), send, send_at, in.data(), recv, recv_at, DataType::i32);
        std::size_t touched = 0;
        for (std::size_t peer = 0; peer < n; ++peer) {
          for (std::size_t i = 0; i < recv[peer]; ++i)
            ASSERT_EQ(in[recv_at[peer] + i], value(static_cast<int>(peer), i) ^ rank) << "from " << peer;
          touched += recv[peer];
        }
        // The gaps are nobody's.
        ASSERT_EQ(static_cast<std::size_t>(std::count(in.begin(), in.end(), -9)), in.size() - touched);
      }
      EXPECT_EQ(comm.state().direct_operations(), 4u);
    });
  }
}

// Who neither gives nor gets anything still says that it is at nobody's buffers; so do all, where nobody
// does.
TEST(DirectBlocks, PairsWithoutAnythingToExchangeTakePart) {
  run_threads(3, [](Communicator& comm, int rank) {
    for (const std::size_t count : {std::size_t{2000}, std::size_t{0}}) {
      const auto between = [&](int from, int to) { return from != 1 && to != 1 ? count : 0; };
      std::vector<std::size_t> send, recv, at;
      for (int peer = 0; peer < 3; ++peer) {
        send.push_back(between(rank, peer));
        recv.push_back(between(peer, rank));
        at.push_back(static_cast<std::size_t>(peer) * 2000);
      }
      std::vector<std::int32_t> out(6000);
      std::vector<std::int32_t> in(6000, -9);
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = value(rank, i);
      comm.all_to_all_v(out.data(), send, at, in.data(), recv, at, DataType::i32);
      for (int peer = 0; peer < 3; ++peer)
        for (std::size_t i = 0; i < 2000; ++i)
          ASSERT_EQ(in[static_cast<std::size_t>(peer) * 2000 + i],
                    i < between(peer, rank) ? value(peer, static_cast<std::size_t>(rank) * 2000 + i) : -9);
    }
    EXPECT_EQ(comm.state().direct_operations(), 2u);
  });
}

}  // namespace
}  // namespace tugline::comm::test

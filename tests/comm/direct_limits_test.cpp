// SPDX-License-Identifier: Apache-2.0
// Buffers that a rank may not have mapped all at once: the operation goes through scratch, at all ranks.
#include <gtest/gtest.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../broker/support.h"
#include "comm/state.h"
#include "device/registry.h"
#include "memory/allocation.h"

namespace tugline::comm::test {
namespace {

constexpr std::size_t kLimit = 100 << 10;
// Before the settings are read.
[[maybe_unused]] const int kLimited =
    ::setenv("TUGLINE_IMPORT_LIMIT_BYTES", std::to_string(kLimit).c_str(), 1);

TEST(DirectLimits, WhatDoesNotFitTheImportsGoesThroughScratchEverywhere) {
  constexpr int kRanks = 3;
  broker::testing::ThreadedServer server;
  const auto devices = device::host_devices(kRanks);
  std::mutex mutex;
  std::string problem;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        auto client = server.join(rank, kRanks);
        CommunicatorState::Identity identity;
        identity.name = "world";
        identity.rank = static_cast<std::uint32_t>(rank);
        identity.size = kRanks;
        identity.process = identity.rank + 1;  // segments are reached, addresses not
        auto state = CommunicatorState::create(client, *devices[static_cast<std::size_t>(rank)], identity);
        Communicator comm(state);
        comm.barrier();
        std::uint64_t direct = 0;
        // The other two ranks' buffers fit, do not, do again.
        for (const std::size_t bytes : {kLimit / 2, kLimit, kLimit / 4, kLimit / 2 + 8192, kLimit / 2}) {
          const auto memory = memory::allocate(client, bytes);
          auto* data = reinterpret_cast<std::int32_t*>(memory->data());
          const std::size_t count = bytes / sizeof *data;
          for (int round = 0; round < 3; ++round) {
            for (std::size_t i = 0; i < count; ++i) data[i] = rank + static_cast<int>(i) + round;
            comm.all_reduce(data, data, count, DataType::i32, ReduceOp::sum);
            for (std::size_t i = 0; i < count; ++i)
              ASSERT_EQ(data[i], 3 + 3 * (static_cast<int>(i) + round)) << bytes;
          }
          if (2 * bytes <= kLimit) direct += 3;
          EXPECT_EQ(state->direct_operations(), direct) << bytes;
        }
        comm.barrier();
      } catch (const std::exception& error) {
        std::lock_guard lock(mutex);
        problem += "rank " + std::to_string(rank) + ": " + error.what() + "\n";
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(problem, "");
}

}  // namespace
}  // namespace tugline::comm::test

// SPDX-License-Identifier: Apache-2.0
// What all ranks know alike of where they run, and that their plans follow from it.
#include "comm/machine.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/settings.h"
#include "device/registry.h"
#include "local_job.h"
#include "topology/file.h"
#include "topology/machine.h"

namespace tugline::comm {
namespace {

// Before the settings are read.
[[maybe_unused]] const int kNamed = ::setenv("TUGLINE_PLAN", "hierarchical", 1);
const std::string kTwoNodes = testing::TempDir() + "two_nodes_" + std::to_string(::getpid()) + ".json";
[[maybe_unused]] const int kFile = ::setenv("TUGLINE_TOPOLOGY", kTwoNodes.c_str(), 1);

using Words = std::vector<std::uint64_t>;
using Groups = std::vector<std::int32_t>;
using topology::Locality;

std::uint64_t at(std::optional<int> node, std::optional<int> cache) {
  return packed({node, cache});
}

TEST(Machine, GroupsAreNodesOrElseCaches) {
  EXPECT_EQ(groups_of(Words{at(1, 4), at(0, 2), at(1, 5), at(0, 2)}), (Groups{0, 1, 0, 1}));
  EXPECT_EQ(groups_of(Words{at(0, 3), at(0, 3), at(0, 7)}), (Groups{0, 0, 1}));
  // All in one, or one that is in several: no groups.
  EXPECT_EQ(groups_of(Words{at(0, 3), at(0, 3)}), Groups{});
  EXPECT_EQ(groups_of(Words{at(0, 3), at(std::nullopt, std::nullopt), at(1, 5)}), Groups{});
  EXPECT_EQ(groups_of(Words{at(0, 3), at(std::nullopt, 3), at(1, 5)}), (Groups{0, 0, 1}));
}

// Ranks in two groups: every collective that has a hierarchical plan runs it when it is named.
TEST(Machine, HierarchicalPlansRunWhereRanksLieInGroups) {
  test::LocalJob job(5);
  job.localities = {{0, 1}, {1, 2}, {0, 1}, {1, 2}, {0, 1}};
  test::run_ranks(job, [](Communicator& comm, int rank) {
    constexpr std::size_t kCount = 5000;
    const auto ranks = static_cast<std::size_t>(comm.size());
    // Only a sum in the order of the groups, (0, 2, 4) and (1, 3), is 2: in rank order it is 1.
    std::vector<float> parts(kCount,
                             std::vector<float>{1e8F, 1, -1e8F, 1, 0}[static_cast<std::size_t>(rank)]);
    comm.all_reduce(parts.data(), parts.data(), kCount, DataType::f32, ReduceOp::sum);
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(parts[i], 2.0F);
    std::vector<std::int32_t> one(kCount, rank + 1);
    std::vector<std::int32_t> all(kCount * ranks);
    comm.all_reduce(one.data(), all.data(), kCount, DataType::i32, ReduceOp::sum);
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(all[i], 15);
    comm.all_gather(one.data(), all.data(), kCount, DataType::i32);
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<int>(i / kCount) + 1);
    std::iota(all.begin(), all.end(), rank);
    comm.reduce_scatter(all.data(), one.data(), kCount, DataType::i32, ReduceOp::sum);
    for (std::size_t i = 0; i < kCount; ++i)
      ASSERT_EQ(one[i], 10 + 5 * static_cast<int>(static_cast<std::size_t>(rank) * kCount + i));
    std::iota(one.begin(), one.end(), comm.rank() == 3 ? 7 : 0);
    comm.broadcast(one.data(), one.data(), kCount, DataType::i32, 3);
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(one[i], static_cast<int>(i) + 7);
    comm.reduce(one.data(), all.data(), kCount, DataType::i32, ReduceOp::sum, 4);
    for (std::size_t i = 0; rank == 4 && i < kCount; ++i) ASSERT_EQ(all[i], 5 * (static_cast<int>(i) + 7));
  });
}

// A note holds the longest values of the settings that all ranks compare; texts are of a few words.
TEST(Machine, TheLongestSettingsFitTheirNote) {
  base::Environment longest;
  for (const auto& row : base::settings_table()) {
    if (!row.same_on_all_ranks) continue;
    const auto type = base::type_of(row);
    ASSERT_TRUE(!row.words.empty() || type == "on or off" || type == "size")
        << row.name << " is of any length";
    std::string value = type == "size" ? "1099511627775" : "off";
    for (const auto word : row.words)
      if (word.size() > value.size()) value = word;
    longest[base::variable_of(row)] = value;
  }
  const auto settings = base::make_settings(longest, {}).settings;
  EXPECT_LE(base::same_values(settings).size(), sizeof(SettingsNote));
}

/// Binds the calling thread; false where it may not run there.
bool bind_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  return ::sched_setaffinity(0, sizeof set, &set) == 0;
}

// From the cores that ranks are bound to and the topology, to the order in which their plan combines.
TEST(Machine, RanksThatAreBoundToTwoNodesAreTwoGroups) {
  topology::save_topology(topology::read_synthetic("numa:2 core:1 pu:1"), kTwoNodes);
  constexpr int kRanks = 4;
  constexpr std::size_t kCount = 1000;
  test::LocalJob job(kRanks);
  const auto devices = device::host_devices(kRanks);
  std::vector<std::vector<float>> results(kRanks);
  std::atomic<int> unbound{0};
  std::barrier all_bound(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto r = static_cast<std::size_t>(rank);
      if (!bind_to(rank % 2)) ++unbound;
      all_bound.arrive_and_wait();
      if (unbound != 0) return;
      CommunicatorState::Identity identity;
      identity.name = "world";
      identity.rank = static_cast<std::uint32_t>(rank);
      identity.size = kRanks;
      identity.process = job.process_of(rank);
      const auto state = CommunicatorState::create(job.client(rank), *devices[r], identity);
      Communicator comm(state);
      // In the order (0, 2) and (1, 3) the sum is 2, in rank order 1.
      results[r].assign(kCount, std::vector<float>{1e8F, 1, -1e8F, 1}[r]);
      comm.all_reduce(results[r].data(), results[r].data(), kCount, DataType::f32, ReduceOp::sum);
    });
  }
  for (auto& thread : threads) thread.join();
  std::filesystem::remove(kTwoNodes);
  if (unbound != 0) GTEST_SKIP() << "this process may not run on the processors 0 and 1";
  for (const auto& result : results) EXPECT_EQ(result, std::vector<float>(kCount, 2.0F));
}

}  // namespace
}  // namespace tugline::comm

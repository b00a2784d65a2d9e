// SPDX-License-Identifier: Apache-2.0
#include "topology/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "topology/machine.h"

namespace tugline::topology {
namespace {

std::vector<std::vector<int>> cores_of(const std::vector<RankPlace>& places) {
  std::vector<std::vector<int>> cores;
  for (const RankPlace& place : places) cores.push_back(place.cores);
  return cores;
}

using Lists = std::vector<std::vector<int>>;

TEST(Placement, ranks_get_cores_of_their_own_in_order) {
  const Topology machine = read_synthetic("core:4 pu:2");
  EXPECT_EQ(cores_of(place_compact(machine, 1)), (Lists{{0, 1, 2, 3}}));
  EXPECT_EQ(cores_of(place_compact(machine, 2)), (Lists{{0, 1}, {2, 3}}));
  EXPECT_EQ(cores_of(place_compact(machine, 3)), (Lists{{0}, {1}, {2, 3}}));
  const auto four = place_compact(machine, 4);
  EXPECT_EQ(cores_of(four), (Lists{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(four[0].os_processors.size(), 2u);
}

TEST(Placement, ranks_stay_within_a_numa_node) {
  const Topology machine = read_synthetic("numa:2 core:3 pu:1");
  EXPECT_EQ(cores_of(place_compact(machine, 2)), (Lists{{0, 1, 2}, {3, 4, 5}}));
  EXPECT_EQ(cores_of(place_compact(machine, 4)), (Lists{{0}, {1, 2}, {3}, {4, 5}}));
  EXPECT_EQ(cores_of(place_compact(machine, 6)), (Lists{{0}, {1}, {2}, {3}, {4}, {5}}));
}

TEST(Placement, more_ranks_than_cores_get_processors_then_share) {
  const Topology machine = read_synthetic("numa:2 core:2 pu:2");
  const auto eight = place_compact(machine, 8);
  std::set<int> seen;
  for (const RankPlace& place : eight) {
    ASSERT_EQ(place.os_processors.size(), 1u);
    EXPECT_TRUE(seen.insert(place.os_processors[0]).second);
  }
  const auto ten = place_compact(machine, 10);
  for (const RankPlace& place : ten) EXPECT_EQ(place.os_processors.size(), 4u);
  EXPECT_EQ(ten[0].cores, (std::vector<int>{0, 1}));
  EXPECT_EQ(ten[9].cores, (std::vector<int>{2, 3}));
}

TEST(Placement, unusable_processors_are_left_out) {
  Topology machine = read_synthetic("numa:2 core:2 pu:2");
  for (Processor& processor : machine.processors)
    processor.usable = processor.os_index % 2 == 0 && processor.core != 0;
  const auto places = place_compact(machine, 3);
  EXPECT_EQ(cores_of(places), (Lists{{1}, {2}, {3}}));
  for (const RankPlace& place : places) {
    ASSERT_EQ(place.os_processors.size(), 1u);
    EXPECT_EQ(place.os_processors[0] % 2, 0);
  }
}

TEST(Placement, impossible_ones_are_refused) {
  Topology machine = read_synthetic("core:2 pu:1");
  EXPECT_THROW(place_compact(machine, 0), Error);
  EXPECT_THROW(place_compact(machine, -3), Error);
  for (Processor& processor : machine.processors) processor.usable = false;
  EXPECT_THROW(place_compact(machine, 1), Error);
}

// What holds for any machine and any number of ranks.
TEST(Placement, property_on_many_machines) {
  for (const char* description :
       {"core:1 pu:1", "core:5 pu:2", "numa:2 core:3 pu:2", "package:2 numa:2 core:3 pu:1",
        "numa:8 core:1 pu:4", "package:3 core:7 pu:2"}) {
    for (unsigned dropped = 0; dropped < 3; ++dropped) {
      Topology machine = read_synthetic(description);
      for (Processor& processor : machine.processors) {
        // Keeps processor 0, and every other one in a pattern.
        processor.usable = dropped == 0 || static_cast<unsigned>(processor.os_index) % (dropped + 1) == 0;
      }
      const std::vector<int> cores = usable_core_list(machine);
      std::size_t usable = 0;
      for (const Processor& processor : machine.processors) usable += processor.usable ? 1 : 0;
      for (int ranks = 1; ranks <= static_cast<int>(usable) + 3; ++ranks) {
        SCOPED_TRACE(std::string(description) + " ranks " + std::to_string(ranks));
        const auto places = place_compact(machine, ranks);
        ASSERT_EQ(places.size(), static_cast<std::size_t>(ranks));
        std::multiset<int> processors;
        std::multiset<int> own_cores;
        for (const RankPlace& place : places) {
          ASSERT_FALSE(place.os_processors.empty());
          ASSERT_TRUE(std::is_sorted(place.cores.begin(), place.cores.end()));
          processors.insert(place.os_processors.begin(), place.os_processors.end());
          own_cores.insert(place.cores.begin(), place.cores.end());
        }
        for (const Processor& processor : machine.processors) {
          const auto times = processors.count(processor.os_index);
          if (!processor.usable) {
            EXPECT_EQ(times, 0u);
          } else if (static_cast<std::size_t>(ranks) <= usable) {
            EXPECT_EQ(times, 1u);  // used, and by one rank only
          } else {
            EXPECT_GE(times, 1u);
          }
        }
        if (static_cast<std::size_t>(ranks) <= cores.size()) {
          for (int core : cores) EXPECT_EQ(own_cores.count(core), 1u);
        }
      }
    }
  }
}

TEST(Links, kind_is_the_nearest_meeting_place) {
  Topology machine = read_synthetic("package:2 numa:1 l3:2 core:2 pu:1");
  attach_host_devices(machine, place_compact(machine, 8), {"a", "b"});
  validate(machine);
  ASSERT_EQ(machine.devices.size(), 8u);
  EXPECT_EQ(machine.devices[1].uuid, "b");
  EXPECT_EQ(machine.devices[2].uuid, "");
  ASSERT_EQ(machine.links.size(), 56u);
  auto link = [&](int from, int to) {
    return *std::find_if(machine.links.begin(), machine.links.end(),
                         [&](const Link& l) { return l.from == from && l.to == to; });
  };
  EXPECT_EQ(link(0, 1).kind, LinkKind::shared_cache);
  EXPECT_EQ(link(1, 2).kind, LinkKind::same_numa_node);
  EXPECT_EQ(link(3, 4).kind, LinkKind::across_numa_nodes);
  EXPECT_EQ(link(4, 3).kind, LinkKind::across_numa_nodes);
  EXPECT_GT(link(0, 1).bytes_per_second, link(1, 2).bytes_per_second);
  EXPECT_GT(link(1, 2).bytes_per_second, link(3, 4).bytes_per_second);
  EXPECT_LT(link(0, 1).latency_seconds, link(3, 4).latency_seconds);
  attach_host_devices(machine, place_compact(machine, 2));
  EXPECT_EQ(machine.links.size(), 2u);
}

}  // namespace
}  // namespace tugline::topology

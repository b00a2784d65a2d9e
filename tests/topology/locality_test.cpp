// SPDX-License-Identifier: Apache-2.0
#include "topology/locality.h"

#include <gtest/gtest.h>

#include "topology/machine.h"
#include "topology/placement.h"

namespace tugline::topology {
namespace {

TEST(Locality, is_the_node_and_the_cache_that_hold_all_processors) {
  // Two packages with a node of eight cores each, four of them to a last-level cache.
  const Topology machine = read_synthetic("package:2 numa:1 l3:2 core:4 pu:2");
  const Locality one = locality_of(machine, {0});
  EXPECT_EQ(one.numa_node, 0);
  ASSERT_TRUE(one.last_cache);
  EXPECT_EQ(machine.caches[static_cast<std::size_t>(*one.last_cache)].level, 3);
  EXPECT_EQ(locality_of(machine, {0, 1, 7}), one);
  const Locality beside = locality_of(machine, {8});
  EXPECT_EQ(beside.numa_node, 0);
  EXPECT_NE(beside.last_cache, one.last_cache);
  EXPECT_EQ(locality_of(machine, {16, 31}).numa_node, 1);
  EXPECT_EQ(locality_of(machine, {7, 8}), (Locality{0, std::nullopt}));
  EXPECT_EQ(locality_of(machine, {0, 16}), Locality{});
  EXPECT_EQ(locality_of(machine, {0, 1000}), Locality{});
  EXPECT_EQ(locality_of(machine, {}), Locality{});
}

TEST(Locality, of_ranks_that_are_placed_compactly_follows_the_nodes) {
  const Topology machine = read_synthetic("numa:4 core:4 pu:1");
  const auto places = place_compact(machine, 8);
  for (std::size_t rank = 0; rank < places.size(); ++rank)
    EXPECT_EQ(locality_of(machine, places[rank].os_processors).numa_node, static_cast<int>(rank / 2)) << rank;
}

}  // namespace
}  // namespace tugline::topology

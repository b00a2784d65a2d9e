// SPDX-License-Identifier: Apache-2.0
// What `tugline doctor` says of where ranks and their memory lie, on machines that are made up.
#include "doctor/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/locality.h"
#include "topology/machine.h"

namespace tugline::cli {
namespace {

using testing::HasSubstr;

TEST(Placement, EveryNodeIsTriedOnceAndItsPagesAreCounted) {
  const auto machine = topology::read_synthetic("numa:2 core:4 pu:1");
  int tried = 0;
  const auto finding = placement_on(machine, 4, [&](const std::vector<int>& processors) {
    ++tried;
    return std::map<int, std::uint64_t>{{*topology::locality_of(machine, processors).numa_node, 64}};
  });
  EXPECT_EQ(tried, 2);
  EXPECT_EQ(finding.level, Level::ok);
  EXPECT_EQ(finding.evidence,
            "4 ranks on 2 NUMA nodes: 128 of 128 pages that ranks populate lie on their rank's node");
}

TEST(Placement, PagesElsewhereAreANoteThatNamesRankAndNode) {
  const auto machine = topology::read_synthetic("numa:2 core:4 pu:1");
  const auto finding = placement_on(machine, 2, [](const std::vector<int>&) {
    return std::map<int, std::uint64_t>{{0, 64}};  // as with numactl --membind=0
  });
  EXPECT_EQ(finding.level, Level::note);
  EXPECT_THAT(finding.evidence,
              HasSubstr("64 of 128 pages that ranks populate lie on their rank's node; of rank 1, "
                        "64 pages lie on node 0 in place of node 1"));
  EXPECT_THAT(finding.fix, HasSubstr("numactl"));
}

TEST(Placement, RanksThatSpanNodesAreCounted) {
  const auto machine = topology::read_synthetic("numa:4 core:2 pu:1");
  const auto finding = placement_on(machine, 2, [](const std::vector<int>&) {
    ADD_FAILURE() << "there is no node to try";
    return std::map<int, std::uint64_t>{};
  });
  EXPECT_EQ(finding.level, Level::note);
  EXPECT_THAT(finding.evidence, HasSubstr("2 ranks on 4 NUMA nodes (2 span several)"));
  EXPECT_THAT(finding.fix, HasSubstr("as many ranks as there are nodes"));
}

// On the machine itself, for each of its nodes: first touch by the rank is all it takes.
TEST(Placement, PopulatedPagesLieOnTheNodeOfWhoPopulates) {
  const auto& machine = topology::this_machine();
  int tried = 0;
  for (const auto& node : machine.numa_nodes) {
    std::vector<int> processors;
    for (const int core : node.cores)
      for (const int processor : machine.cores[static_cast<std::size_t>(core)].processors)
        if (machine.processors[static_cast<std::size_t>(processor)].usable)
          processors.push_back(machine.processors[static_cast<std::size_t>(processor)].os_index);
    if (processors.empty()) continue;
    ++tried;
    const auto pages = pages_populated_on(processors);
    ASSERT_FALSE(pages.empty()) << "node " << node.os_index;
    if (pages.count(-1) != 0) GTEST_SKIP() << "the kernel tells no page's node (move_pages)";
    EXPECT_EQ(pages.size(), 1u) << "node " << node.os_index;
    EXPECT_EQ(pages.begin()->first, node.os_index);
  }
  if (tried < 2) GTEST_SKIP() << "this machine has one NUMA node: its pages lie there, which says little";
}

}  // namespace
}  // namespace tugline::cli

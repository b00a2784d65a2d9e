// SPDX-License-Identifier: Apache-2.0
// Hierarchical plans over groups of any shape.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "core/plan/builders.h"
#include "core/plan/checker.h"
#include "core/plan/groups.h"
#include "core/plan/print.h"
#include "plan_cases.h"
#include "plan_interpreter.h"

namespace tugline::core::test {
namespace {

using testing::HasSubstr;

constexpr Collective kServed[] = {
    Collective::all_reduce,   Collective::reduce,         Collective::broadcast,       Collective::all_gather,
    Collective::all_gather_v, Collective::reduce_scatter, Collective::reduce_scatter_v};

/// Groups of random sizes whose ranks lie together or are mixed; always several, one of two ranks at least.
std::vector<std::int32_t> random_groups(std::int32_t ranks, std::mt19937_64& random) {
  const std::uint64_t most = 2 + random() % static_cast<std::uint64_t>(ranks - 2);
  std::vector<std::int64_t> groups;
  do {
    groups.clear();
    for (std::int32_t rank = 0; rank < ranks; ++rank)
      groups.push_back(static_cast<std::int64_t>(random() % most));
    if (random() % 2 == 0) std::sort(groups.begin(), groups.end());
  } while (!Groups(numbered_in_order(groups)).nest());
  return numbered_in_order(groups);
}

PlanRequest random_request(Collective collective, std::int32_t ranks, std::mt19937_64& random) {
  PlanRequest request{.collective = collective, .ranks = ranks, .element_bytes = 4};
  request.root = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(ranks));
  request.in_place = random() % 2 == 0;
  request.average = reduces(collective) && random() % 2 == 0;
  const std::uint64_t elements = 1 + random() % (ranks > 24 ? 150 : 1000);
  request.bytes = elements * request.element_bytes;
  if (has_blocks(collective)) give_blocks(request, elements);
  request.groups = random_groups(ranks, random);
  // From two slots of small pieces to more than everything needs.
  request.scratch_bytes = std::uint64_t{64} * static_cast<std::uint64_t>(ranks) << (random() % 6);
  request.chunk_bytes = random() % 2 == 0 ? 0 : 128;
  return request;
}

TEST(PlanHierarchical, IsProvenForOneToSixtyFourRanksInGroupsOfAnyShape) {
  std::mt19937_64 random(7);
  std::map<Collective, int> proven;
  for (std::int32_t ranks = 3; ranks <= kMostRanks; ranks += kStride) {
    for (const Collective collective : kServed) {
      for (int repeat = 0; repeat < (ranks <= 16 ? 4 : 1); ++repeat) {
        const PlanRequest request = random_request(collective, ranks, random);
        if (!can_build("hierarchical", request)) continue;
        const Plan plan = build("hierarchical", request);
        const CheckResult result = check(plan);
        ASSERT_TRUE(result.ok) << describe("hierarchical", request) << "\n" << result.problem;
        ASSERT_LE(plan.scratch_bytes, request.scratch_bytes) << describe("hierarchical", request);
        ++proven[collective];
        if (ranks > 16) continue;
        const RunResult run = interpret(plan, random());
        ASSERT_TRUE(run.ended && run.in_bounds) << describe("hierarchical", request);
        for (std::int32_t rank = 0; rank < ranks; ++rank)
          ASSERT_EQ(run.outputs[static_cast<std::size_t>(rank)], expected_output(plan, rank))
              << describe("hierarchical", request) << " at rank " << rank;
      }
    }
  }
  for (const Collective collective : kServed)
    EXPECT_GT(proven[collective], kStride == 1 ? 80 : 20) << name_of(collective);
}

/// Bytes that ranks of one group read from others, all ranks together.
std::uint64_t crossing_bytes(const Plan& plan, const std::vector<std::int32_t>& groups) {
  std::uint64_t bytes = 0;
  for (std::size_t rank = 0; rank < plan.programs.size(); ++rank) {
    for (const Step& step : plan.programs[rank][0]) {
      std::vector<Place> sources;
      if (step.kind == StepKind::copy || step.kind == StepKind::put) sources = {step.source};
      if (step.kind == StepKind::reduce) {
        sources = {step.source, step.second};
        sources.insert(sources.end(), step.more.begin(), step.more.end());
      }
      for (const Place& place : sources)
        if (groups[static_cast<std::size_t>(place.rank)] != groups[rank]) bytes += step.bytes;
    }
  }
  return bytes;
}

TEST(PlanHierarchical, EveryByteCrossesBetweenTwoGroupsOnce) {
  const std::uint64_t bytes = 64 << 10;
  const auto crossing = [&](std::string_view builder, Collective collective) {
    PlanRequest request{.collective = collective, .ranks = 8, .bytes = bytes, .scratch_bytes = 1 << 20};
    request.groups = groups_of(8, 0);
    return crossing_bytes(build(builder, request), request.groups);
  };
  // From each of two groups to the other: the message, or the blocks of four ranks.
  EXPECT_EQ(crossing("hierarchical", Collective::all_reduce), 2 * bytes);
  EXPECT_EQ(crossing("hierarchical", Collective::reduce), bytes);
  EXPECT_EQ(crossing("hierarchical", Collective::broadcast), bytes);
  EXPECT_EQ(crossing("hierarchical", Collective::all_gather), 2 * 4 * bytes);
  EXPECT_EQ(crossing("hierarchical", Collective::reduce_scatter), 2 * 4 * bytes);
  // What it is for: the flat ones cross as often as there are readers.
  EXPECT_EQ(crossing("two_shot", Collective::all_reduce), 8 * bytes);
  EXPECT_EQ(crossing("one_shot", Collective::broadcast), 4 * bytes);
  EXPECT_EQ(crossing("one_shot", Collective::all_gather), 4 * 8 * bytes);
}

TEST(PlanHierarchical, NeedsGroupsThatNest) {
  PlanRequest request{.ranks = 4, .bytes = 4096, .scratch_bytes = 64 << 10};
  for (const auto& groups : std::vector<std::vector<std::int32_t>>{{}, {0, 0, 0, 0}, {0, 1, 2, 3}}) {
    request.groups = groups;
    EXPECT_FALSE(can_build("hierarchical", request)) << text_of(groups);
    EXPECT_TRUE(can_build("two_shot", request)) << text_of(groups);
  }
  request.groups = {0, 1, 1, 2};
  EXPECT_TRUE(can_build("hierarchical", request));
  request.scratch_bytes = 0;
  EXPECT_FALSE(can_build("hierarchical", request));
}

TEST(PlanHierarchical, GroupsThatMakeNoSenseAreNamed) {
  EXPECT_EQ(problem_of_groups({0, 0, 1}, 3), "");
  EXPECT_THAT(problem_of_groups({0, 0}, 3), HasSubstr("has 2 ranks, must have 3"));
  EXPECT_THAT(problem_of_groups({0, 2, 1}, 3), HasSubstr("groups[1] is 2, must be 0 to 1"));
  EXPECT_THAT(problem_of_groups({1, 0}, 2), HasSubstr("groups[0] is 1, must be 0 to 0"));
  EXPECT_THAT(problem_of_groups({0, -1}, 2), HasSubstr("groups[1] is -1"));
  EXPECT_EQ(numbered_in_order({7, 7, -2, 7, 3}), (std::vector<std::int32_t>{0, 0, 1, 0, 2}));

  PlanRequest request{.ranks = 4, .bytes = 4096, .scratch_bytes = 64 << 10};
  request.groups = {0, 0, 1, 1};
  Plan plan = build("hierarchical", request);
  EXPECT_THAT(print_header(plan), HasSubstr(", 2 groups, group_order"));
  plan.groups = {0, 1, 0, 1};  // combined in another order than it says
  EXPECT_THAT(check(plan).problem, HasSubstr("it must hold ((r0 op r2) op (r1 op r3))"));
  plan.groups.clear();
  EXPECT_THAT(check(plan).problem, HasSubstr("groups has 0 ranks, must have 4"));
}

// Whatever plan of this class a rank runs, in place or not, with much scratch or little: the bits are the
// same, because every element is combined in one order, which the checker holds every plan to.
TEST(PlanHierarchical, TheOrderFollowsFromTheGroupsAlone) {
  for (std::uint64_t scratch : {4 << 10, 1 << 20}) {
    for (const bool in_place : {false, true}) {
      PlanRequest request{.ranks = 7, .bytes = 9000, .in_place = in_place, .scratch_bytes = scratch};
      request.groups = {0, 1, 0, 2, 1, 0, 0};
      const Plan plan = build("hierarchical", request);
      EXPECT_EQ(plan.order, ReductionOrder::group_order);
      EXPECT_EQ(check(plan).problem, "");
      std::set<std::vector<std::uint8_t>> results;
      for (std::uint64_t seed : {1, 2, 3})
        for (const auto& output : interpret(plan, seed).outputs) results.insert(output);
      EXPECT_EQ(results.size(), 1u);
    }
  }
}

}  // namespace
}  // namespace tugline::core::test

// SPDX-License-Identifier: Apache-2.0
#include "core/plan/checker.h"

#include <gtest/gtest.h>

#include <map>

#include "core/plan/builders.h"
#include "plan_cases.h"

namespace tugline::core::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(PlanChecker, ProvesWhatTheBuildersMake) {
  std::map<std::string, int> proven;
  int turn = 0;
  const auto prove = [&](auto name, const PlanRequest& request) {
    if (turn++ % kStride != 0) return;
    const CheckResult result = check(build(name, request));
    ASSERT_TRUE(result.ok) << describe(name, request) << "\n" << result.problem;
    ++proven[std::string(name) + " " + std::string(name_of(request.collective))];
  };
  for_each_case({1, 2, 3, 4, 5, 6, 7, 8, 9}, {0, 1, 13, 601, 1900}, prove);
  for_each_case({16, 33}, {601}, prove);
  for_each_case({64}, {130}, prove);
  // one_shot serves twelve collectives, one_shot_packet all of them but all_to_all_v, direct twelve,
  // hierarchical seven, ring six, two_shot and tree two, recursive and point_to_point one.
  std::string all;
  for (const auto& [what, count] : proven) all += what + "\n";
  EXPECT_EQ(proven.size(), 12u + 11u + 12u + 7u + 6u + 2u + 2u + 1u + 1u) << all;
}

TEST(PlanChecker, ProvesEveryBuilderForOneToSixtyFourRanks) {
  std::map<std::string, int> proven;
  int rank_counts = 0;
  for (std::int32_t ranks = 1; ranks <= kMostRanks; ranks += ranks < 2 ? 1 : kStride) {
    ++rank_counts;
    for (int collective = 0; collective < kCollectiveCount; ++collective) {
      PlanRequest request{.collective = static_cast<Collective>(collective), .ranks = ranks};
      const std::uint64_t elements = static_cast<std::uint64_t>(ranks) % 3 == 0 ? 3 : 83;
      request.root = ranks * 2 / 3;
      request.bytes = request.collective == Collective::barrier ? 0 : elements * request.element_bytes;
      request.in_place = ranks % 2 == 0;
      if (has_blocks(request.collective)) give_blocks(request, elements);
      request.scratch_bytes = 64 << 10;
      request.chunk_bytes = 128;
      request.direct = true;
      request.groups = groups_of(ranks, static_cast<std::uint64_t>(ranks));
      for (auto name : builder_names()) {
        if (!can_build(name, request)) continue;
        const CheckResult result = check(build(name, request));
        ASSERT_TRUE(result.ok) << describe(name, request) << "\n" << result.problem;
        ++proven[std::string(name)];
      }
    }
  }
  EXPECT_EQ(proven["point_to_point"], 1);
  for (auto name : builder_names()) {
    if (name == "point_to_point") continue;
    EXPECT_GT(proven[std::string(name)], rank_counts - 4) << name;
  }
}

TEST(PlanChecker, ProvesDefaultChunksOverDefaultScratch) {
  for (int collective = 0; collective < kCollectiveCount; ++collective) {
    for (std::uint64_t bytes : {64 << 10, 1 << 20, (4 << 20) + 4}) {
      for (std::int32_t ranks : {2, 3, 4}) {
        PlanRequest request;
        request.collective = static_cast<Collective>(collective);
        request.ranks = ranks;
        request.bytes = bytes;
        request.in_place = ranks == 3;
        request.groups = groups_of(ranks, bytes);
        if (has_blocks(request.collective)) give_blocks(request, bytes / 4);
        request.scratch_bytes = 4 << 20;
        for (auto name : builder_names()) {
          if (!can_build(name, request)) continue;
          const CheckResult result = check(build(name, request));
          EXPECT_TRUE(result.ok) << describe(name, request) << "\n" << result.problem;
        }
      }
    }
  }
}

/// A right plan to break: two ranks, eight elements, through scratch.
class BrokenPlan : public testing::Test {
 protected:
  void SetUp() override {
    plan_.name = "by hand";
    plan_.collective = Collective::all_reduce;
    plan_.ranks = 2;
    plan_.element_bytes = 4;
    plan_.bytes = 32;
    plan_.scratch_bytes = 64;
    plan_.order = ReductionOrder::rank_order;
    plan_.programs.resize(2);
    for (std::int32_t rank = 0; rank < 2; ++rank) {
      const std::int32_t peer = 1 - rank;
      const Place input{Space::input, rank, 0};
      const Place output{Space::output, rank, 0};
      const Place own{Space::scratch, rank, 0};
      const Place other{Space::scratch, peer, 0};
      Program program(4);
      program[0] = {.kind = StepKind::copy, .bytes = 32, .destination = own, .source = input};
      program[1] = {.kind = StepKind::signal, .peer = peer, .value = 1};
      program[2] = {.kind = StepKind::wait, .peer = peer, .value = 1};
      program[3] = {.kind = StepKind::reduce,
                    .bytes = 32,
                    .destination = output,
                    .source = rank == 0 ? input : other,
                    .second = rank == 0 ? other : input};
      plan_.programs[static_cast<std::size_t>(rank)] = {program};
    }
    ASSERT_EQ(check(plan_).problem, "");
  }
  Program& program(std::size_t rank) { return plan_.programs[rank][0]; }
  std::string problem() const {
    const CheckResult result = check(plan_);
    EXPECT_EQ(result.ok, result.problem.empty());
    return result.problem;
  }

  Plan plan_;
};

TEST_F(BrokenPlan, MissingWaitIsARead) {
  program(1).erase(program(1).begin() + 2);
  EXPECT_THAT(problem(), AllOf(HasSubstr("rank 1 channel 0 step 2"), HasSubstr("scratch of rank 0 [0, 32)"),
                               HasSubstr("rank 0 channel 0 step 0"), HasSubstr("must wait")));
}

TEST_F(BrokenPlan, ReadBeforeAnybodyWrote) {
  std::swap(program(0)[0], program(0)[3]);
  program(0)[3] = program(0)[0];
  program(0)[0] = {.kind = StepKind::copy,
                   .bytes = 32,
                   .destination = {Space::output, 0, 0},
                   .source = {Space::scratch, 1, 0}};
  EXPECT_THAT(problem(), HasSubstr("which nobody has written"));
}

TEST_F(BrokenPlan, MissingSignalIsADeadlock) {
  program(0).erase(program(0).begin() + 1);
  EXPECT_THAT(problem(), AllOf(HasSubstr("deadlock: rank 1 channel 0 step 2"), HasSubstr("flag 0 of rank 0"),
                               HasSubstr("waits for 1, it reaches 0")));
}

TEST_F(BrokenPlan, OverwrittenBeforeRead) {
  program(0).push_back({.kind = StepKind::copy,
                        .bytes = 8,
                        .destination = {Space::scratch, 0, 8},
                        .source = {Space::input, 0, 0}});
  EXPECT_THAT(problem(), AllOf(HasSubstr("scratch of rank 0 [8, 16)"), HasSubstr("nothing orders the two")));
}

TEST_F(BrokenPlan, SwappedOperandsAreAnotherOrder) {
  std::swap(program(1)[3].source, program(1)[3].second);
  EXPECT_THAT(problem(), AllOf(HasSubstr("rank 1 output[0, 32) holds (r1 op r0)"),
                               HasSubstr("it must hold (r0 op r1)")));
  plan_.order = ReductionOrder::other;
  EXPECT_THAT(problem(), HasSubstr("as at rank 0"));
}

TEST_F(BrokenPlan, TwiceAndNever) {
  program(0)[3].second = program(0)[3].source;
  EXPECT_THAT(problem(), HasSubstr("holds (r0 op r0)"));
  plan_.order = ReductionOrder::other;
  EXPECT_THAT(problem(), HasSubstr("rank 0 contributes more than once"));
  program(0)[3] = {.kind = StepKind::copy,
                   .bytes = 32,
                   .destination = {Space::output, 0, 0},
                   .source = {Space::input, 0, 0}};
  EXPECT_THAT(problem(), HasSubstr("rank 1 does not contribute"));
  program(0).pop_back();
  EXPECT_THAT(problem(), HasSubstr("rank 0 output[0, 32) holds nothing"));
  plan_.order = ReductionOrder::rank_order;
  EXPECT_THAT(problem(), HasSubstr("is never written"));
}

TEST_F(BrokenPlan, ShiftedElements) {
  program(0)[3].second.offset = 4;
  program(0)[3].bytes = 28;
  EXPECT_THAT(problem(), HasSubstr("(r0 op r1[+4])"));
}

TEST_F(BrokenPlan, HalvesOfDifferentElements) {
  // Rank 0 publishes its input two bytes off: whole elements are read that are none.
  program(0)[0].bytes = 30;
  program(0)[0].destination.offset = 2;
  program(0).insert(program(0).begin(), {.kind = StepKind::copy,
                                         .bytes = 2,
                                         .destination = {Space::scratch, 0, 0},
                                         .source = {Space::input, 0, 30}});
  EXPECT_THAT(problem(), HasSubstr("takes parts of different elements for one"));
}

TEST_F(BrokenPlan, FlagsOnlyGrow) {
  program(0).push_back({.kind = StepKind::signal, .peer = 1, .value = 1});
  EXPECT_THAT(problem(), AllOf(HasSubstr("raises flag 0 at rank 1 to 1"), HasSubstr("has 1 already")));
}

TEST_F(BrokenPlan, ChannelsShareNoFlagAndNoBytes) {
  plan_.programs[0].push_back({{.kind = StepKind::signal, .peer = 1, .value = 2}});
  EXPECT_THAT(problem(), HasSubstr("give each channel its own flag"));
  plan_.programs[0][1] = {{.kind = StepKind::copy,
                           .bytes = 4,
                           .destination = {Space::output, 0, 0},
                           .source = {Space::input, 0, 0}}};
  EXPECT_THAT(problem(), HasSubstr("nothing orders the two"));
}

TEST_F(BrokenPlan, Bounds) {
  program(0)[0].destination.offset = 40;
  EXPECT_THAT(problem(), HasSubstr("32 bytes from 40 on leave the scratch of 64 bytes"));
  program(0)[0].destination.offset = ~std::uint64_t{0} - 3;
  EXPECT_THAT(problem(), HasSubstr("leave the scratch"));
  program(0)[0].destination = {Space::scratch, 1, 0};
  EXPECT_THAT(problem(), HasSubstr("only put writes there"));
  program(0)[0].destination = {Space::input, 0, 0};
  EXPECT_THAT(problem(), HasSubstr("an input is never written"));
  program(0)[0].destination = {Space::scratch, 0, 0};
  program(0)[0].source = {Space::input, 1, 0};
  EXPECT_THAT(problem(), HasSubstr("may be touched by that rank only"));
}

TEST_F(BrokenPlan, OverlapsWithinAStep) {
  program(0)[0].bytes = 16;
  program(0)[0].source = {Space::scratch, 0, 8};
  EXPECT_THAT(problem(), HasSubstr("source and destination overlap"));
}

TEST_F(BrokenPlan, StepFields) {
  const Program good = program(0);
  const auto expect = [&](auto change, const char* words) {
    program(0) = good;
    change(program(0));
    EXPECT_THAT(problem(), HasSubstr(words));
  };
  expect([](Program& p) { p[1].peer = 0; }, "peer: rank 0 is this rank");
  expect([](Program& p) { p[1].peer = 2; }, "peer: rank 2 does not exist");
  expect([](Program& p) { p[2].peer = kEveryone; }, "peer: rank -1 does not exist");
  expect([](Program& p) { p[1].flag = 7; }, "flag: 7 does not exist");
  expect([](Program& p) { p[2].value = 0; }, "value: flags start at 0");
  expect([](Program& p) { p[2].value = kMaxFlagValue + 1; }, "value: 1048576 is above the largest");
  expect([](Program& p) { p[3].bytes = 30; }, "bytes: 30 is not a multiple of element_bytes 4");
  expect([](Program& p) { p[3].kind = static_cast<StepKind>(99); }, "kind 99 does not exist");
  expect([](Program& p) { p[3].second.space = static_cast<Space>(9); }, "space 9 does not exist");
  expect([](Program& p) { p[3].kind = StepKind::put; }, "put writes to another rank's scratch");
  expect([](Program& p) { p.push_back({.kind = StepKind::scale, .bytes = 4}); }, "an input is never written");
  expect(
      [](Program& p) {
        p.push_back({.kind = StepKind::scale, .bytes = 4, .destination = {Space::output, 0, 0}});
      },
      "average is false");
  const auto long_one = packet_bytes(2) + 4;
  expect([&](Program& p) { p.push_back({.kind = StepKind::put_packet, .bytes = long_one}); },
         "do not fit a packet");
}

TEST_F(BrokenPlan, PlanFields) {
  const Plan good = plan_;
  const auto expect = [&](auto change, const char* words) {
    plan_ = good;
    change(plan_);
    EXPECT_THAT(problem(), HasSubstr(words));
  };
  expect([](Plan& p) { p.ranks = 0; }, "ranks is 0");
  expect([](Plan& p) { p.ranks = 3; }, "programs for 2 ranks, must be 3");
  expect([](Plan& p) { p.ranks = 3, p.trades_scratch = true; },
         "trades_scratch is true, but there are 3 ranks");
  expect([](Plan& p) { p.root = 2; }, "root is 2");
  expect([](Plan& p) { p.bytes = 30; }, "bytes is 30");
  expect([](Plan& p) { p.element_bytes = 0; }, "element_bytes is 0");
  expect([](Plan& p) { p.order = ReductionOrder::none; }, "order is none, but all_reduce reduces");
  expect([](Plan& p) { p.collective = Collective::broadcast; }, "order is rank_order, but broadcast reduces");
  expect([](Plan& p) { p.blocks = {8}; }, "blocks has 1 sizes, all_reduce over 2 ranks has 0");
  expect(
      [](Plan& p) {
        p.collective = Collective::reduce_scatter_v;
        p.blocks = {8, 16};
      },
      "bytes is 32, must be the sum of all blocks, 24");
  expect(
      [](Plan& p) {
        p.collective = Collective::reduce_scatter_v;
        p.blocks = {8, 24};
      },
      "leave the output of 8 bytes");
  expect([](Plan& p) { p.average = true; }, "it must hold (r0 op r1)/2");
  expect([](Plan& p) { p.programs[0].clear(); }, "deadlock");
}

TEST(PlanChecker, AveragesDivideOnceAndLast) {
  PlanRequest request;
  request.collective = Collective::all_reduce;
  request.ranks = 3;
  request.bytes = 48;
  request.average = true;
  request.in_place = true;
  Plan plan = build("one_shot_packet", request);
  plan.order = ReductionOrder::other;
  EXPECT_EQ(check(plan).problem, "");
  const Program good = plan.programs[1][0];
  Program& program = plan.programs[1][0];
  program.push_back(program.back());
  EXPECT_THAT(check(plan).problem, HasSubstr("divided before all contributions"));
  program = good;
  std::swap(program[program.size() - 1], program[program.size() - 2]);
  EXPECT_THAT(check(plan).problem, HasSubstr("it is not divided by the number of ranks"));
}

TEST(PlanChecker, TreeOrderIsOfReduceAndIsWhatTheTreeCombines) {
  PlanRequest request;
  request.collective = Collective::reduce;
  request.ranks = 5;
  request.root = 3;
  request.bytes = 64;
  request.scratch_bytes = 4096;
  const Plan good = build("tree", request);
  EXPECT_EQ(check(good).problem, "");
  Plan plan = good;
  plan.order = ReductionOrder::rank_order;
  EXPECT_THAT(check(plan).problem, HasSubstr("rank 3 output[0, 64) holds"));
  plan.order = ReductionOrder::other;
  EXPECT_EQ(check(plan).problem, "") << "everything once";
  plan = good;
  plan.collective = Collective::all_reduce;
  EXPECT_THAT(check(plan).problem, HasSubstr("tree_order, which only reduce has, not all_reduce"));
  plan = build("one_shot", request);
  plan.order = ReductionOrder::tree_order;
  EXPECT_THAT(check(plan).problem, HasSubstr("rank 3 output[0, 64) holds"));
}

TEST(PlanChecker, WhereARankHasNoBufferNothingIsThere) {
  PlanRequest request;
  request.ranks = 3;
  request.root = 1;
  request.bytes = 64;
  request.scratch_bytes = 4096;
  const auto problem_of = [&](Collective collective, Space space) {
    request.collective = collective;
    Plan plan = build("one_shot", request);
    const Place there{space, 2, 0};
    const Place scratch{Space::scratch, 2, 0};
    plan.programs[2][0].push_back({.kind = StepKind::copy,
                                   .bytes = 4,
                                   .destination = space == Space::input ? scratch : there,
                                   .source = space == Space::input ? there : scratch});
    return check(plan).problem;
  };
  EXPECT_THAT(problem_of(Collective::reduce, Space::output), HasSubstr("leave the output of 0 bytes"));
  EXPECT_THAT(problem_of(Collective::gather, Space::output), HasSubstr("leave the output of 0 bytes"));
  EXPECT_THAT(problem_of(Collective::scatter, Space::input), HasSubstr("leave the input of 0 bytes"));
  EXPECT_THAT(problem_of(Collective::broadcast, Space::input), HasSubstr("leave the input of 0 bytes"));
}

TEST(PlanChecker, DirectPlansEndWhenNobodyIsAtTheBuffersAnyMore) {
  PlanRequest request;
  request.collective = Collective::all_reduce;
  request.ranks = 3;
  request.bytes = 48;
  request.direct = true;
  Plan plan = build("direct", request);
  EXPECT_EQ(check(plan).problem, "");
  const Program good = plan.programs[1][0];
  Program& program = plan.programs[1][0];
  program.pop_back();  // the wait for one of the others
  EXPECT_THAT(check(plan).problem, AllOf(HasSubstr("rank 1 may end while rank"), HasSubstr("still")));
  program = good;
  plan.direct = false;
  EXPECT_THAT(check(plan).problem, HasSubstr("may be touched by that rank only, but in a direct plan"));
  plan.direct = true;
  // Signalled before the last piece is delivered.
  std::swap(program[program.size() - 4], program[program.size() - 6]);
  EXPECT_THAT(check(plan).problem, HasSubstr("may end while rank 1"));
}

TEST(PlanChecker, PacketsAreOnePerRankAndBounded) {
  PlanRequest request;
  request.collective = Collective::all_gather;
  request.ranks = 2;
  request.bytes = 24;
  const Plan good = build("one_shot_packet", request);
  Plan plan = good;
  plan.programs[0][0].push_back(plan.programs[0][0].front());
  EXPECT_THAT(check(plan).problem, HasSubstr("publishes a second packet"));
  plan = good;
  for (Step& step : plan.programs[1][0]) {
    if (step.kind == StepKind::copy_packet) step.source.offset = 8;
  }
  EXPECT_THAT(check(plan).problem, HasSubstr("takes payload [8, 32), the packet of rank 0 has 24 bytes"));
  plan = good;
  plan.programs[0][0].erase(plan.programs[0][0].begin());
  EXPECT_THAT(check(plan).problem, HasSubstr("for a packet that rank 0 does not publish"));
}

TEST(PlanChecker, ABarrierWaitsForEverybody) {
  PlanRequest request;
  request.collective = Collective::barrier;
  request.ranks = 3;
  for (auto name : {"one_shot", "one_shot_packet"}) {
    Plan plan = build(name, request);
    EXPECT_EQ(check(plan).problem, "");
    plan.programs[2][0].pop_back();
    EXPECT_THAT(check(plan).problem, HasSubstr("rank 2 may end before rank 1 has come")) << name;
  }
}

}  // namespace
}  // namespace tugline::core::test

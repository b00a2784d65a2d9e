// SPDX-License-Identifier: Apache-2.0
#include "core/plan/builders.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "core/plan/pipeline.h"
#include "plan_cases.h"
#include "plan_interpreter.h"
#include "tugline/error.h"

namespace tugline::core::test {
namespace {

TEST(PlanBuilders, ComputeTheCollectiveOnRealBytes) {
  std::map<std::string, int> built;
  for_each_case({1, 2, 3, 4, 5, 7, 8}, {0, 1, 7, 255, 1500}, [&](auto name, const PlanRequest& request) {
    const Plan plan = build(name, request);
    ++built[std::string(name) + " " + std::string(name_of(request.collective))];
    ASSERT_LE(plan.scratch_bytes, request.scratch_bytes) << describe(name, request);
    for (std::uint64_t seed : {1, 2}) {
      const RunResult run = interpret(plan, seed);
      ASSERT_TRUE(run.ended) << describe(name, request);
      ASSERT_TRUE(run.in_bounds) << describe(name, request);
      for (std::int32_t rank = 0; rank < plan.ranks; ++rank) {
        ASSERT_EQ(run.outputs[static_cast<std::size_t>(rank)], expected_output(plan, rank))
            << describe(name, request) << " at rank " << rank;
      }
    }
  });
  for (const auto& [what, count] : built) EXPECT_GT(count, 0) << what;
}

// Two ranks trade their scratch: what a rank writes lies where it was the last one to read, also in the next
// operation of the same size, if the executor exchanges the scratch as the plan says.
TEST(PlanBuilders, TwoRanksWriteWhereTheyHaveReadLast) {
  for (auto collective :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all}) {
    for (std::uint64_t chunks : {1, 2, 4, 6, 64}) {
      const std::uint64_t chunk = chunks == 64 ? kLongTradedChunkBytes : kTradedChunkBytes;
      PlanRequest request{
          .collective = collective, .ranks = 2, .bytes = chunks * chunk, .scratch_bytes = 64 << 10};
      const Plan plan = build_one_shot(request);
      EXPECT_EQ(plan.scratch_bytes, std::min<std::uint64_t>(chunks, 2) * chunk);
      std::map<std::pair<std::int32_t, std::uint64_t>, std::int32_t> reader;  // [area, offset]: rank
      bool exchanged = false;
      for (int operation = 0; operation < 3; ++operation) {
        const auto area = [&](const Place& place) {
          return std::pair(exchanged ? 1 - place.rank : place.rank, place.offset);
        };
        std::array<std::size_t, 2> next{};
        std::array<std::uint32_t, 2> raised{};
        while (next[0] < plan.programs[0][0].size() || next[1] < plan.programs[1][0].size()) {
          for (std::size_t rank = 0; rank < 2; ++rank) {
            const auto& program = plan.programs[rank][0];
            for (; next[rank] < program.size(); ++next[rank]) {
              const Step& step = program[next[rank]];
              if (step.kind == StepKind::wait && raised[1 - rank] < step.value) break;
              if (step.kind == StepKind::signal) raised[rank] = step.value;
              if (step.kind != StepKind::copy && step.kind != StepKind::put && step.kind != StepKind::reduce)
                continue;
              for (const Place& source : {step.source, step.second})
                if (source.space == Space::scratch) reader[area(source)] = static_cast<std::int32_t>(rank);
              if (step.destination.space != Space::scratch) continue;
              const auto found = reader.find(area(step.destination));
              if (found != reader.end()) {
                EXPECT_EQ(found->second, static_cast<std::int32_t>(rank))
                    << name_of(collective) << " of " << chunks << " chunks, operation " << operation;
              }
            }
          }
        }
        if (plan.trades_scratch) exchanged = !exchanged;
      }
      EXPECT_FALSE(reader.empty());
    }
  }
}

TEST(PlanBuilders, NoBytesMeansNoSteps) {
  for_each_case({1, 2, 5}, {0}, [&](auto name, const PlanRequest& request) {
    if (request.collective == Collective::barrier) return;
    for (const auto& channels : build(name, request).programs) {
      for (const Program& program : channels) EXPECT_TRUE(program.empty()) << describe(name, request);
    }
  });
}

TEST(PlanBuilders, OnlyOneRanksProgramIsThatOfTheWholePlan) {
  for_each_case({2, 5}, {700}, [&](auto name, PlanRequest request) {
    if (request.collective == Collective::all_to_all_v) return;  // the next test
    const Plan whole = build(name, request);
    for (std::int32_t rank = 0; rank < request.ranks; ++rank) {
      request.only_rank = rank;
      const Plan one = build(name, request);
      for (std::size_t r = 0; r < one.programs.size(); ++r) {
        if (r == static_cast<std::size_t>(rank)) {
          EXPECT_EQ(one.programs[r], whole.programs[r]) << describe(name, request);
        } else {
          EXPECT_TRUE(one.programs[r][0].empty()) << describe(name, request);
        }
      }
    }
  });
}

TEST(PlanBuilders, ARankNeedsToKnowItsOwnPairsOnly) {
  for_each_case({2, 5}, {700}, [&](auto name, PlanRequest request) {
    if (request.collective != Collective::all_to_all_v) return;
    const Plan whole = build(name, request);
    const auto n = static_cast<std::size_t>(request.ranks);
    const auto all = request.blocks;
    for (request.only_rank = 0; request.only_rank < request.ranks; ++request.only_rank) {
      const auto self = static_cast<std::size_t>(request.only_rank);
      request.blocks.clear();
      request.bytes = 0;
      for (std::size_t peer = 0; peer < n; ++peer) request.blocks.push_back(all[self * n + peer]);
      for (std::size_t peer = 0; peer < n; ++peer) request.blocks.push_back(all[peer * n + self]);
      for (std::uint64_t bytes : request.blocks) request.bytes += bytes;
      for (std::size_t peer = 0; peer < n; ++peer)
        request.peer_begins.push_back(whole.input_begin(static_cast<std::int32_t>(peer), request.only_rank));
      const Plan one = build(name, request);
      EXPECT_EQ(one.programs[self], whole.programs[self]) << describe(name, request);
      request.peer_begins.clear();
      EXPECT_EQ(one.scratch_bytes, whole.scratch_bytes) << describe(name, request);
    }
  });
}

TEST(PlanBuilders, InputsThatTheirRankMultipliesAreNotReadByOthers) {
  PlanRequest request;
  request.ranks = 2;
  request.bytes = 1 << 20;
  request.scratch_bytes = 1 << 20;
  request.direct = true;
  EXPECT_TRUE(can_build("direct", request));
  request.pre_multiplied = true;
  EXPECT_FALSE(can_build("direct", request));
  EXPECT_TRUE(can_build("two_shot", request));
}

TEST(PlanBuilders, StepsStayBoundedForLargeMessages) {
  PlanRequest request;
  request.collective = Collective::all_reduce;
  request.ranks = 2;
  request.bytes = std::uint64_t{4} << 30;
  request.scratch_bytes = 8 << 20;
  request.only_rank = 0;
  for (auto name : builder_names()) {
    if (!can_build(name, request)) continue;
    const Plan plan = build(name, request);
    EXPECT_LE(plan.programs[0][0].size(), 4096u * 12u) << name;
    EXPECT_LE(plan.scratch_bytes, request.scratch_bytes) << name;
  }
}

TEST(PlanBuilders, WhatAFlagCannotCountIsNotBuilt) {
  // Two slots of 64 bytes: a ring of 256 ranks passes an item of 64 bytes in each of 510 turns.
  PlanRequest request;
  request.collective = Collective::all_reduce;
  request.ranks = 256;
  request.scratch_bytes = 128;
  request.only_rank = 3;
  const std::uint64_t most_rounds = kMaxFlagValue / 510;
  request.bytes = 256 * 64 * most_rounds;
  EXPECT_TRUE(can_build("ring", request));
  request.bytes += 256 * 64;
  EXPECT_FALSE(can_build("ring", request));

  request.ranks = 2;
  request.scratch_bytes = 1 << 10;
  request.bytes = 1 << 30;
  for (auto name : builder_names()) EXPECT_FALSE(can_build(name, request)) << name;
}

TEST(PlanBuilders, NonsenseIsRefusedByFieldAndValue) {
  const auto text_of = [](PlanRequest request) -> std::string {
    try {
      build("one_shot", request);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "accepted";
  };
  PlanRequest good;
  good.ranks = 4;
  good.bytes = 64;
  good.scratch_bytes = 4096;
  EXPECT_EQ(text_of(good), "accepted");
  const auto expect = [&](auto change, const std::string& words) {
    PlanRequest bad = good;
    change(bad);
    EXPECT_THAT(text_of(bad), testing::HasSubstr(words));
    EXPECT_FALSE(can_build("one_shot", bad)) << words;
  };
  expect([](PlanRequest& r) { r.ranks = 0; }, "ranks = 0");
  expect([](PlanRequest& r) { r.ranks = 1000; }, "ranks = 1000");
  expect([](PlanRequest& r) { r.root = 4; }, "root = 4");
  expect([](PlanRequest& r) { r.bytes = 66; }, "bytes = 66");
  expect([](PlanRequest& r) { r.element_bytes = 0; }, "element_bytes = 0");
  expect([](PlanRequest& r) { r.only_rank = 4; }, "only_rank = 4");
  expect([](PlanRequest& r) { r.collective = Collective::broadcast, r.average = true; }, "average = true");
  expect([](PlanRequest& r) { r.collective = Collective::send_recv; }, "ranks = 4");
  expect([](PlanRequest& r) { r.blocks = {64}; }, "blocks has 1 sizes, but all_reduce has none");
  expect([](PlanRequest& r) { r.collective = Collective::all_gather_v; }, "blocks has 0 sizes, must have 4");
  expect(
      [](PlanRequest& r) {
        r.collective = Collective::all_gather_v, r.blocks = {4, 0, 4, 4};
      },
      "bytes = 64, must be the sum of all blocks, 12");
  expect(
      [](PlanRequest& r) {
        r.collective = Collective::reduce_scatter_v, r.blocks = {6, 0, 54, 4};
      },
      "blocks[0] = 6");
}

TEST(PlanBuilders, WhatCannotBeServedSaysSo) {
  PlanRequest request;
  request.ranks = 4;
  request.bytes = 1 << 20;
  request.scratch_bytes = 0;
  EXPECT_FALSE(can_build("one_shot", request));
  try {
    build("one_shot", request);
    FAIL() << "built a plan without scratch";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), testing::HasSubstr("1048576 bytes over 4 ranks with 0 bytes of scratch"));
  }
  EXPECT_FALSE(can_build("no_such", request));
  try {
    build("no_such", request);
    FAIL() << "built a plan of an unknown kind";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
    EXPECT_THAT(error.what(), testing::HasSubstr("one_shot_packet, direct, one_shot"));
  }
}

TEST(PlanBuilders, BlocksCoverTheBufferInOrder) {
  for (std::uint64_t element : {1, 2, 4, 8, 24}) {
    for (std::uint64_t elements : {0, 1, 3, 64, 1000, 4097}) {
      for (std::int32_t count : {1, 2, 3, 7, 16}) {
        std::uint64_t at = 0;
        for (std::int32_t index = 0; index < count; ++index) {
          const ByteRange range = block_of(elements * element, element, count, index);
          EXPECT_EQ(range.begin, at);
          EXPECT_EQ(range.begin % element, 0u);
          EXPECT_LE(range.begin, range.end);
          at = range.end;
        }
        EXPECT_EQ(at, elements * element);
      }
    }
  }
  EXPECT_EQ(block_of(1 << 20, 4, 3, 1).begin % 64, 0u);
}

}  // namespace
}  // namespace tugline::core::test

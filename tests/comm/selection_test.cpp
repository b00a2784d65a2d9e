// SPDX-License-Identifier: Apache-2.0
// Which plan serves a request, and what is advised where none does: every advice is tried.
#include "comm/selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <charconv>

#include "comm/layout.h"
#include "core/plan/groups.h"
#include "tugline/error.h"

namespace tugline::comm {
namespace {

using testing::HasSubstr;

core::PlanRequest request_of(core::Collective collective, int ranks, std::uint64_t bytes,
                             std::uint64_t scratch) {
  return {.collective = collective, .ranks = ranks, .bytes = bytes, .scratch_bytes = scratch / kHalves};
}

core::CostModel machine_of(int cores, std::vector<std::int32_t> groups = {}) {
  core::CostModel machine;
  machine.cores = cores;
  machine.groups = std::move(groups);
  return machine;
}

std::string_view chosen(core::Collective collective, int ranks, std::uint64_t bytes,
                        const core::CostModel& machine, const ChoiceRules& rules = {}) {
  auto request =
      request_of(collective, ranks, bytes, rank_scratch_bytes(static_cast<std::uint64_t>(ranks), 2 << 20));
  request.groups = machine.groups;
  return choose_builder(request, machine, rules).builder;
}

Error refusal(const core::PlanRequest& request, std::string_view forced = {}) {
  try {
    choose_builder(request, {}, {.forced = forced});
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "chosen";
  return Error(ErrorCode::internal, "none", "none");
}

TEST(Selection, TheForcedBuilderWinsWhereItCanAndIsNamedWhereNot) {
  auto request = request_of(core::Collective::all_reduce, 4, 1 << 20, 2 << 20);
  EXPECT_EQ(choose_builder(request, {}).builder, "two_shot");
  EXPECT_EQ(choose_builder(request, {}, {.forced = "ring"}).builder, "ring");
  request.collective = core::Collective::all_to_all;
  auto choice = choose_builder(request, {}, {.forced = "ring"});
  EXPECT_EQ(choice.builder, "one_shot");
  EXPECT_THAT(choice.reason, HasSubstr("ring, which the setting plan names, cannot serve it"));
}

TEST(Selection, TwoRanksTradeTheirScratchAtEverySize) {
  for (std::uint64_t bytes : {2u << 10, 64u << 10, 64u << 20}) {
    const auto request = request_of(core::Collective::all_reduce, 2, bytes, 2 << 20);
    EXPECT_EQ(choose_builder(request, {}).builder, "one_shot") << bytes;
  }
}

// As measured on two cores: docs/measurements.md.
TEST(Selection, RanksThatShareTwoCores) {
  struct Row {
    core::Collective collective;
    int ranks;
    std::uint64_t bytes;
    std::string_view builder;
  };
  using core::Collective;
  for (const Row& row :
       {Row{Collective::all_reduce, 8, 1024, "one_shot_packet"},
        Row{Collective::all_reduce, 8, 2 << 10, "one_shot"},
        Row{Collective::all_reduce, 8, 16 << 10, "two_shot"},
        Row{Collective::all_reduce, 8, 1 << 20, "two_shot"},
        Row{Collective::all_reduce, 8, 8 << 20, "two_shot"},
        Row{Collective::all_reduce, 4, 128 << 10, "two_shot"},
        Row{Collective::all_reduce, 4, 1 << 20, "two_shot"}, Row{Collective::reduce, 8, 2 << 10, "one_shot"},
        Row{Collective::reduce, 8, 1 << 20, "two_shot"}, Row{Collective::reduce, 4, 1 << 20, "two_shot"},
        Row{Collective::broadcast, 8, 1032, "one_shot"}, Row{Collective::broadcast, 8, 1 << 20, "one_shot"},
        Row{Collective::broadcast, 4, 8 << 20, "one_shot"}, Row{Collective::all_gather, 8, 1032, "one_shot"},
        Row{Collective::all_gather, 8, 128 << 10, "one_shot"},
        Row{Collective::all_gather, 4, 2 << 20, "one_shot"},
        Row{Collective::reduce_scatter, 8, 136, "one_shot"}}) {
    EXPECT_EQ(chosen(row.collective, row.ranks, row.bytes, machine_of(2)), row.builder)
        << core::name_of(row.collective) << " of " << row.bytes << " on " << row.ranks;
  }
}

TEST(Selection, ManyRanksWithCoresOfTheirOwnTakeFewerTrips) {
  EXPECT_EQ(chosen(core::Collective::broadcast, 64, 1 << 10, machine_of(2)), "one_shot");
  EXPECT_EQ(chosen(core::Collective::reduce, 64, 1 << 10, machine_of(64), {.rank_order = false}), "tree");
  EXPECT_EQ(chosen(core::Collective::all_reduce, 64, 256, machine_of(64), {.rank_order = false}),
            "recursive");
  EXPECT_NE(chosen(core::Collective::all_reduce, 64, 256, machine_of(2), {.rank_order = false}), "recursive");
}

TEST(Selection, WhereRanksLieInGroupsWhatCrossesDoesSoOnce) {
  std::vector<std::int32_t> halves;
  for (int rank = 0; rank < 32; ++rank) halves.push_back(rank / 16);
  const auto machine = machine_of(32, halves);
  EXPECT_EQ(chosen(core::Collective::broadcast, 32, 64 << 10, machine_of(32)), "one_shot");
  for (auto collective : {core::Collective::all_reduce, core::Collective::reduce})
    EXPECT_EQ(chosen(collective, 32, 1 << 20, machine, {.rank_order = false}), "hierarchical")
        << core::name_of(collective);
  // A group's order is not that of the ranks.
  EXPECT_EQ(chosen(core::Collective::all_reduce, 32, 1 << 20, machine), "two_shot");
}

TEST(Selection, WithOneOrderTheBitsOfAReductionFollowFromNothingElse) {
  for (int ranks : {3, 4, 8, 17, 64}) {
    for (auto collective :
         {core::Collective::all_reduce, core::Collective::reduce, core::Collective::reduce_scatter}) {
      for (std::uint64_t bytes = 64; bytes <= 4 << 20; bytes *= 4) {
        for (int cores : {1, 2, ranks}) {
          for (bool grouped : {false, true}) {
            std::vector<std::int32_t> groups;
            for (int rank = 0; grouped && rank < ranks; ++rank) groups.push_back(rank * 2 / ranks);
            EXPECT_EQ(core::order_of(chosen(collective, ranks, bytes, machine_of(cores, groups))),
                      core::ReductionOrder::rank_order)
                << core::name_of(collective) << ' ' << bytes << " on " << ranks;
          }
        }
      }
    }
  }
}

// Each rank asks for its own program, in place or not as it likes: all have to come to one plan.
TEST(Selection, IsTheSameAtAllRanks) {
  for (int ranks : {3, 5, 8, 16}) {
    const auto groups = core::numbered_in_order([&] {
      std::vector<std::int64_t> list;
      for (int rank = 0; rank < ranks; ++rank) list.push_back(rank % 3 == 2 ? 1 : 0);
      return list;
    }());
    for (int collective = 0; collective < core::kCollectiveCount; ++collective) {
      const auto kind = static_cast<core::Collective>(collective);
      if (kind == core::Collective::send_recv || kind == core::Collective::all_to_all_v) continue;
      for (std::uint64_t bytes = 64; bytes <= 4 << 20; bytes *= 8) {
        for (bool rank_order : {false, true}) {
          const auto machine = machine_of(ranks - 1, groups);
          auto request = request_of(kind, ranks, kind == core::Collective::barrier ? 0 : bytes, 2 << 20);
          request.root = ranks / 2;
          request.groups = groups;
          for (int rank = 0; core::has_blocks(kind) && rank < ranks; ++rank)
            request.blocks.push_back(rank == 0 ? bytes : 0);
          const auto expected = choose_builder(request, machine, {.rank_order = rank_order}).builder;
          for (request.only_rank = 0; request.only_rank < ranks; ++request.only_rank) {
            request.in_place = request.only_rank % 2 == 1;
            EXPECT_EQ(choose_builder(request, machine, {.rank_order = rank_order}).builder, expected)
                << core::name_of(kind) << " of " << bytes << " at rank " << request.only_rank;
          }
        }
      }
    }
  }
}

// The choice is made before all ranks have come only where it cannot depend on who they are.
TEST(Selection, WhatDoesNotAskForTheMachineDoesNotDependOnIt) {
  for (int ranks : {2, 3, 8}) {
    for (int collective = 0; collective < core::kCollectiveCount; ++collective) {
      const auto kind = static_cast<core::Collective>(collective);
      if (kind == core::Collective::send_recv || core::has_blocks(kind)) continue;
      for (std::uint64_t bytes = 4; bytes <= 4 << 20; bytes *= 16) {
        for (std::string_view forced : {"", "ring", "tree", "hierarchical"}) {
          for (bool direct : {false, true}) {
            auto request = request_of(kind, ranks, kind == core::Collective::barrier ? 0 : bytes, 2 << 20);
            request.direct = direct;
            const ChoiceRules rules{.forced = forced, .rank_order = false};
            if (depends_on_machine(request, rules)) continue;
            const auto without = choose_builder(request, {}, rules).builder;
            for (int rank = 0; rank < ranks; ++rank) request.groups.push_back(rank * 2 / ranks);
            EXPECT_EQ(choose_builder(request, machine_of(64, request.groups), rules).builder, without)
                << core::name_of(kind) << " of " << bytes << " on " << ranks << " with " << forced;
          }
        }
      }
    }
  }
}

TEST(Selection, SaysTheExpectedTimesAndWhereRanksRun) {
  auto request = request_of(core::Collective::all_reduce, 8, 1 << 20, 2 << 20);
  EXPECT_THAT(
      choose_builder(request, machine_of(2)).reason,
      testing::MatchesRegex("estimated .* us, beside one_shot .* for 8 ranks on 2 cores, in rank order"));
  request.groups = {0, 0, 0, 0, 1, 1, 1, 1};
  EXPECT_THAT(
      choose_builder(request, machine_of(8, request.groups), {.rank_order = false}).reason,
      testing::MatchesRegex("estimated .* us, beside one_shot .*, ring .*, hierarchical .* for 8 ranks on 8 "
                            "cores in 2 groups"));
}

TEST(Selection, ARequestWithoutSenseIsNoWantOfScratch) {
  for (const char* forced : {"", "ring"}) {
    auto error = refusal(request_of(core::Collective::barrier, 2, 1 << 20, 2 << 20), forced);
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("a barrier has none"));
  }
}

TEST(Selection, AdvisesTheScratchThatSuffices) {
  auto request = request_of(core::Collective::all_reduce, 2, std::uint64_t{1} << 40, 2 << 20);
  std::string advice = refusal(request).what_to_do();
  const std::string before = "set TUGLINE_SCRATCH_BYTES to ";
  ASSERT_THAT(advice, HasSubstr(before));
  std::uint64_t bytes = 0;
  std::from_chars(advice.data() + before.size(), advice.data() + advice.size(), bytes);
  request.scratch_bytes = rank_scratch_bytes(2, bytes) / kHalves;
  EXPECT_EQ(choose_builder(request, {}).builder, "one_shot");
}

TEST(Selection, AdvisesNoScratchThatCannotBeHad) {
  auto request = request_of(core::Collective::all_gather, 256, std::uint64_t{1} << 44, 2 << 20);
  request.scratch_bytes = rank_scratch_bytes(256, 2 << 20) / kHalves;
  EXPECT_THAT(refusal(request).what_to_do(), HasSubstr("move fewer bytes at once"));
}

TEST(Selection, MessagesDoNotUseTheSettingsScratch) {
  auto request = request_of(core::Collective::send_recv, 2, std::uint64_t{1} << 34, pair_scratch_bytes(256));
  EXPECT_THAT(refusal(request).what_to_do(), HasSubstr("send fewer bytes at once"));
  EXPECT_EQ(pair_scratch_bytes(2), 512u << 10);
  EXPECT_EQ(pair_scratch_bytes(256), 8u << 10);
}

}  // namespace
}  // namespace tugline::comm

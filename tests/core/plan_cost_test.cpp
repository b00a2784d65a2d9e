// SPDX-License-Identifier: Apache-2.0
#include "core/plan/cost.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/plan/builders.h"

namespace tugline::core::test {
namespace {

double price(std::string_view builder, std::int32_t ranks, std::uint64_t bytes, CostModel model = {}) {
  PlanRequest request;
  request.collective = Collective::all_reduce;
  request.ranks = ranks;
  request.bytes = bytes;
  request.scratch_bytes = 8 << 20;
  if (model.cores == 1) model.cores = ranks;
  return predict_seconds(build(builder, request), model);
}

TEST(PlanCost, OnePacketIsOneTrip) {
  const CostModel model;
  const double packet = price("one_shot_packet", 2, 8);
  EXPECT_GT(packet, model.packet_seconds);
  EXPECT_LT(packet, 2 * model.packet_seconds);
  EXPECT_LT(packet, price("one_shot", 2, 8));
}

TEST(PlanCost, FewerTripsWinWhenSmall) {
  for (std::int32_t ranks : {4, 8}) {
    EXPECT_LT(price("one_shot", ranks, 256), price("two_shot", ranks, 256)) << ranks;
    EXPECT_LT(price("two_shot", ranks, 256), price("ring", ranks, 256)) << ranks;
  }
}

TEST(PlanCost, FewerBytesWinWhenLarge) {
  for (std::int32_t ranks : {4, 8}) {
    EXPECT_LT(price("two_shot", ranks, 16 << 20), price("one_shot", ranks, 16 << 20)) << ranks;
    EXPECT_LT(price("ring", ranks, 16 << 20), price("one_shot", ranks, 16 << 20)) << ranks;
  }
}

TEST(PlanCost, ATreeWinsWhereManyRanksWithCoresMoveLittle) {
  const auto price_of = [](std::string_view builder, Collective collective, std::int32_t ranks,
                           std::uint64_t bytes, int cores) {
    PlanRequest request;
    request.collective = collective;
    request.ranks = ranks;
    request.bytes = bytes;
    request.scratch_bytes = 256 << 10;
    CostModel model;
    model.cores = cores;
    return predict_seconds(build(builder, request), model);
  };
  for (std::int32_t ranks : {16, 64}) {
    EXPECT_LT(price_of("tree", Collective::reduce, ranks, 1024, ranks),
              price_of("one_shot", Collective::reduce, ranks, 1024, ranks))
        << ranks;
  }
  // Ranks that take turns pay for every level with a switch.
  EXPECT_GT(price_of("tree", Collective::reduce, 16, 1024, 2),
            price_of("one_shot", Collective::reduce, 16, 1024, 2));
}

TEST(PlanCost, RecursiveDoublingWinsWhereManyRanksWithCoresMoveLittle) {
  for (std::int32_t ranks : {16, 64}) {
    EXPECT_LT(price("recursive", ranks, 256), price("one_shot", ranks, 256)) << ranks;
    EXPECT_LT(price("recursive", ranks, 256), price("two_shot", ranks, 256)) << ranks;
    EXPECT_GT(price("recursive", ranks, 1 << 20), price("two_shot", ranks, 1 << 20)) << ranks;
    CostModel crowded;
    crowded.cores = 2;
    EXPECT_GT(price("recursive", ranks, 256, crowded), price("one_shot", ranks, 256, crowded)) << ranks;
  }
}

TEST(PlanCost, LargeMessagesCostTheirBytes) {
  // Two ranks, one shot: every byte is copied once and reduced once by each rank.
  const CostModel model;
  const double bytes = 64 << 20;
  const double traffic = bytes / model.local_bytes_per_second + bytes / model.reduce_bytes_per_second;
  const double seconds = price("one_shot", 2, 64 << 20);
  EXPECT_GT(seconds, traffic);
  EXPECT_LT(seconds, 1.1 * traffic);
}

TEST(PlanCost, FewerCoresThanRanksTakeTurns) {
  CostModel two;
  two.cores = 2;
  CostModel four;
  four.cores = 4;
  const double crowded = price("one_shot", 4, 4 << 20, two);
  const double roomy = price("one_shot", 4, 4 << 20, four);
  EXPECT_GT(crowded, 1.8 * roomy);
  EXPECT_LT(crowded, 3 * roomy);
}

TEST(PlanCost, TheSameEveryTime) {
  CostModel crowded;
  crowded.cores = 3;
  for (auto name : {"one_shot", "two_shot", "ring"}) {
    EXPECT_EQ(price(name, 5, 100000, crowded), price(name, 5, 100000, crowded)) << name;
    EXPECT_EQ(price(name, 5, 100000), price(name, 5, 100000)) << name;
  }
}

// The estimate is what communicators choose by; the simulation goes through every step.
TEST(PlanCost, TheEstimateIsCloseToTheSimulation) {
  int compared = 0;
  for (auto collective : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                          Collective::broadcast, Collective::reduce}) {
    for (std::int32_t ranks : {3, 4, 8, 17}) {
      for (std::uint64_t bytes : {2 << 10, 64 << 10, 1 << 20}) {
        for (bool grouped : {false, true}) {
          for (bool crowded : {false, true}) {
            // Of ranks that take turns the simulation sees the best order; a root with its core to itself.
            if (crowded && (has_root(collective) || grouped)) continue;
            PlanRequest request{
                .collective = collective, .ranks = ranks, .bytes = bytes, .scratch_bytes = 512 << 10};
            CostModel model;
            model.cores = crowded ? 2 : ranks;
            for (std::int32_t rank = 0; grouped && rank < ranks; ++rank)
              request.groups.push_back(rank * 2 / ranks);
            model.groups = request.groups;
            for (auto builder : builder_names()) {
              if (builder == "one_shot_packet" || !can_build(builder, request)) continue;
              const double estimated = estimate_seconds(builder, request, model);
              const double simulated = predict_seconds(build(builder, request), model);
              ++compared;
              EXPECT_LT(estimated, 1.7 * simulated)
                  << builder << ' ' << name_of(collective) << " of " << bytes << " on " << ranks << " groups "
                  << grouped << " crowded " << crowded << ": " << estimated * 1e6 << " us, "
                  << simulated * 1e6;
              EXPECT_GT(1.7 * estimated, simulated)
                  << builder << ' ' << name_of(collective) << " of " << bytes << " on " << ranks << " groups "
                  << grouped << " crowded " << crowded << ": " << estimated * 1e6 << " us, "
                  << simulated * 1e6;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 300);
}

TEST(PlanCost, TheEstimateIsOneForAllRanks) {
  PlanRequest request{.collective = Collective::reduce,
                      .ranks = 6,
                      .root = 2,
                      .bytes = 96 << 10,
                      .scratch_bytes = 256 << 10,
                      .groups = {0, 1, 1, 0, 2, 2}};
  CostModel model;
  model.cores = 6;
  model.groups = request.groups;
  for (auto builder : {"one_shot", "two_shot", "tree", "hierarchical"}) {
    const double expected = estimate_seconds(builder, request, model);
    for (request.only_rank = 0; request.only_rank < 6; ++request.only_rank) {
      request.in_place = !request.in_place;
      EXPECT_EQ(estimate_seconds(builder, request, model), expected) << builder;
    }
  }
}

TEST(PlanCost, NothingIsFreeOfCharge) {
  EXPECT_EQ(price("one_shot", 4, 0), 0);
  EXPECT_GT(price("one_shot", 4, 4), 0);
}

TEST(PlanCost, APlanThatDoesNotEndIsInfinite) {
  PlanRequest request;
  request.ranks = 2;
  request.bytes = 64;
  request.scratch_bytes = 4096;
  Plan plan = build("one_shot", request);
  plan.programs[1][0].clear();
  EXPECT_TRUE(std::isinf(predict_seconds(plan, {})));
}

}  // namespace
}  // namespace tugline::core::test

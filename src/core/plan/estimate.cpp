// SPDX-License-Identifier: Apache-2.0
// The estimate by which communicators choose: what a rank works, and how often it waits for others.
//
// The work is summed over the program of one rank, or where ranks differ over those of a few. What waiting
// costs depends on the cores. Where each rank has its own, a trip from rank to rank costs a signal, and only
// trips that nothing overlaps count. Where ranks take turns, all their work is one sum, and each time that a
// rank has to wait all others get their turn.
#include <algorithm>
#include <bit>

#include "core/plan/builder_parts.h"
#include "core/plan/cost.h"
#include "core/plan/step_price.h"

namespace tugline::core {

namespace {

/// How often a rank waits for others.
struct Waits {
  double trips = 0;         ///< one after the other, each rank on its own core
  double filled_bytes = 0;  ///< fetched in each of these trips before the next can begin
  double turns = 0;         ///< where ranks take turns: until the last has ended
};

double log2_up(std::int32_t ranks) noexcept {
  return std::bit_width(static_cast<std::uint32_t>(ranks - 1));
}

/// A pipeline of stages: a rank gets `lead` + 1 chunks ahead before it waits.
Waits of_stages(const Pipeline& pipeline, double stages) noexcept {
  const auto chunks = static_cast<double>(pipeline.chunks());
  const auto lead = static_cast<double>(pipeline.lead);
  return {.trips = lead > 0 ? stages : stages * chunks, .turns = chunks / (lead + 1) + stages};
}

/// A one-way pipeline over `trips` ranks, with credits for half its slots at a time.
Waits of_credits(const Pipeline& pipeline, double trips) noexcept {
  const double groups = static_cast<double>(pipeline.chunks()) /
                        static_cast<double>(std::max<std::uint64_t>(pipeline.slots / 2, 1));
  return {.trips = trips,
          .filled_bytes = static_cast<double>(std::min(pipeline.chunk, pipeline.length)),
          .turns = trips + groups};
}

Waits waits_of(std::string_view builder, const PlanRequest& request) {
  const std::int32_t ranks = request.ranks;
  if (builder == "two_shot") return of_stages(*two_shot_pipeline(request), 2);
  if (builder == "tree") return of_credits(*tree_pipeline(request), log2_up(ranks));
  if (builder == "recursive") return {.trips = log2_up(ranks), .turns = log2_up(ranks) + 1};
  if (builder == "hierarchical") {
    const bool returns =
        request.collective == Collective::all_reduce || request.collective == Collective::reduce;
    return of_stages(*hierarchical_pipeline(request), returns ? 3 : 2);
  }
  if (builder == "ring") {
    const Pipeline pipeline = *ring_pipeline(request);
    if (request.collective == Collective::broadcast) return of_credits(pipeline, ranks - 1);
    const double items = (request.collective == Collective::all_reduce ? 2 : 1) * (ranks - 1);
    // Two rounds run interleaved. In its turn a rank finds what two ranks before it have written.
    const double rounds = std::max(static_cast<double>(pipeline.chunks()) / 2, 1.0);
    return {.trips = items * rounds, .turns = items * rounds / 2 + 1};
  }
  if (builder == "one_shot" && request.collective != Collective::barrier) {
    const Pipeline pipeline = *one_shot_pipeline(request);
    return has_root(request.collective) ? of_credits(pipeline, 1) : of_stages(pipeline, 1);
  }
  return {.trips = 1, .turns = 2};  // a packet, a barrier; direct: everyone waits for everyone at the end
}

double work_of(std::string_view builder, PlanRequest request, std::int32_t rank, const CostModel& model) {
  request.only_rank = rank;
  request.in_place = false;  // each rank's own business
  const Plan plan = build(builder, request);
  double seconds = 0;
  for (const Program& program : plan.programs[static_cast<std::size_t>(rank)])
    for (const Step& step : program) seconds += step_seconds(step, rank, request.ranks, model);
  return seconds;
}

// Larger messages cost their bytes, and more steps to sum: a part of them tells.
constexpr std::uint64_t kMostSummedBytes = 4 << 20;

double estimate_whole(std::string_view builder, const PlanRequest& request, const CostModel& model) {
  const std::int32_t ranks = request.ranks;
  const double of_root = work_of(builder, request, request.root, model);
  double busiest = of_root;
  double all = of_root * ranks;
  // Ranks differ by their distance from the root, and by the shape of their group.
  if (ranks > 2 && (has_root(request.collective) || builder == "hierarchical")) {
    const double one = work_of(builder, request, (request.root + 1) % ranks, model);
    const double other = work_of(builder, request, (request.root + ranks / 2) % ranks, model);
    busiest = std::max({busiest, one, other});
    all = of_root + (one + other) / 2 * (ranks - 1);
  }
  const Waits waits = waits_of(builder, request);
  const bool crosses = !model.groups.empty() && std::any_of(model.groups.begin(), model.groups.end(),
                                                            [](auto group) { return group > 0; });
  if (model.cores >= ranks) {
    const double trip = waits.filled_bytes / model.remote_bytes_per_second +
                        (crosses ? model.far_signal_seconds : model.signal_seconds);
    return busiest + waits.trips * trip;
  }
  const double share = static_cast<double>(ranks) / std::max(model.cores, 1);
  // Ranks that wait look again and again, and have half of the core that the busiest one works on.
  return std::max(2 * busiest, all / std::max(model.cores, 1)) + waits.turns * share * model.switch_seconds;
}

}  // namespace

double estimate_seconds(std::string_view builder, const PlanRequest& request, const CostModel& model) {
  const std::uint64_t longest = longest_block(request);
  if (longest <= kMostSummedBytes) return estimate_whole(builder, request, model);
  PlanRequest part = request;
  const double share = static_cast<double>(kMostSummedBytes) / static_cast<double>(longest);
  const auto shortened = [&](std::uint64_t bytes) {
    return static_cast<std::uint64_t>(static_cast<double>(bytes / request.element_bytes) * share) *
           request.element_bytes;
  };
  part.bytes = 0;
  for (std::uint64_t& bytes : part.blocks) part.bytes += bytes = shortened(bytes);
  if (part.blocks.empty()) part.bytes = shortened(request.bytes);
  return estimate_whole(builder, part, model) / share;
}

}  // namespace tugline::core

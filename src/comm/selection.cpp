// SPDX-License-Identifier: Apache-2.0
#include "comm/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/count.h"
#include "base/settings.h"
#include "comm/layout.h"
#include "core/plan/groups.h"
#include "tugline/error.h"

namespace tugline::comm {
namespace {

/// Only ever asked for a request that makes sense, so that scratch is all that can be missing.
std::string remedy_for(core::PlanRequest request) {
  if (request.collective == core::Collective::send_recv)
    return "send fewer bytes at once: the scratch between two ranks follows from their number";
  const auto most = kScratchLimit / static_cast<std::uint64_t>(request.ranks);
  for (auto bytes = std::max<std::uint64_t>(request.scratch_bytes, 1); bytes * kHalves <= most; bytes *= 2) {
    request.scratch_bytes = bytes;
    for (auto builder : core::builder_names())
      if (core::can_build(builder, request))
        return fmt::format("set TUGLINE_SCRATCH_BYTES to {} or more", bytes * kHalves);
  }
  return fmt::format("move fewer bytes at once: more than {} bytes of scratch a rank are not to be had",
                     most);
}

[[noreturn]] void refuse(const core::PlanRequest& request) {
  throw Error(
      ErrorCode::unsupported,
      fmt::format("no plan for {} of {} bytes on {} ranks with {} bytes of scratch",
                  core::name_of(request.collective), request.bytes, request.ranks, request.scratch_bytes),
      remedy_for(request), {.operation = std::string(core::name_of(request.collective))});
}

/// Where ranks have several ways, which the cost model prices; with the others there is nothing to choose.
bool has_alternatives(core::Collective collective) noexcept {
  switch (collective) {
    case core::Collective::all_reduce:
    case core::Collective::reduce:
    case core::Collective::broadcast:
    case core::Collective::all_gather:
    case core::Collective::all_gather_v:
    case core::Collective::reduce_scatter:
    case core::Collective::reduce_scatter_v:
      return true;
    default:
      return false;
  }
}

struct Priced {
  std::string_view builder;
  double seconds;
};

// Builders stand in the order of preference: a later one must be expected to be better by so much, for the
// estimate is no closer.
constexpr double kWorthwhile = 0.8;

// A reduce's root reads everybody's scratch alone. Where that outgrows the caches of the cores that ranks
// share, which the cost model does not know, its reading takes twice as long as sharing it: measured on two
// cores.
constexpr std::uint64_t kSharedReduceFromBytes = 256 << 10;

Choice choose_by_cost(const core::PlanRequest& request, const core::CostModel& machine, bool rank_order) {
  const bool shared_reduce = request.collective == core::Collective::reduce &&
                             machine.cores < request.ranks && request.bytes >= kSharedReduceFromBytes;
  if (shared_reduce && core::can_build("two_shot", request))
    return {"two_shot",
            fmt::format("{} bytes and more on ranks that share cores: the ranks share the combining",
                        kSharedReduceFromBytes)};
  std::vector<Priced> candidates;
  for (auto builder : core::builder_names()) {
    const bool in_order = !core::reduces(request.collective) || !rank_order ||
                          core::order_of(builder) == core::ReductionOrder::rank_order;
    if (in_order && core::can_build(builder, request))
      candidates.push_back({builder, core::estimate_seconds(builder, request, machine)});
  }
  // In another order rather than not at all.
  if (candidates.empty() && rank_order) return choose_by_cost(request, machine, false);
  if (candidates.empty()) refuse(request);
  const Priced* best = &candidates.front();
  for (const Priced& candidate : candidates)
    if (candidate.seconds < kWorthwhile * best->seconds) best = &candidate;
  std::string prices;
  for (const Priced& candidate : candidates)
    if (&candidate != best)
      prices += fmt::format("{}{} {:.1f}", prices.empty() ? ", beside " : ", ", candidate.builder,
                            candidate.seconds * 1e6);
  const auto cores = std::min(machine.cores, request.ranks);
  const auto groups = request.groups.empty() ? 1 : core::Groups(request.groups).count();
  return {best->builder,
          fmt::format("estimated {:.1f} us{} for {} on {}{}{}", best->seconds * 1e6, prices,
                      base::counted(request.ranks, "rank"), base::counted(cores, "core"),
                      groups > 1 ? fmt::format(" in {} groups", groups) : "",
                      core::reduces(request.collective) && rank_order ? ", in rank order" : "")};
}

Choice choose_freely(const core::PlanRequest& request, const core::CostModel& machine, bool rank_order) {
  if (core::can_build("one_shot_packet", request))
    return {"one_shot_packet", fmt::format("fits one packet of {} bytes: one trip, no exit barrier",
                                           core::packet_bytes(request.ranks))};
  if (core::can_build("direct", request))
    return {"direct", "every rank can reach the buffers of all: nothing is copied through scratch"};
  // Two ranks read the same bytes either way, and one shot lets them trade their scratch.
  if (request.ranks == 2 && core::can_build("one_shot", request))
    return {"one_shot", "two ranks: every byte is fetched once by the other one"};
  if (has_alternatives(request.collective)) return choose_by_cost(request, machine, rank_order);
  for (auto builder : core::builder_names())
    if (core::can_build(builder, request)) return {builder, "the only builder that serves the request"};
  refuse(request);
}

}  // namespace

ChoiceRules rules_of_settings() {
  const auto& settings = base::settings();
  return {.forced = settings.plan, .rank_order = settings.deterministic};
}

bool depends_on_machine(const core::PlanRequest& request, const ChoiceRules& rules) noexcept {
  if (request.ranks <= 2 || !has_alternatives(request.collective)) return false;
  // That one needs groups.
  if (rules.forced == "hierarchical") return true;
  return !core::can_build(rules.forced, request) && !core::can_build("one_shot_packet", request) &&
         !core::can_build("direct", request);
}

Choice choose_builder(const core::PlanRequest& request, const core::CostModel& machine,
                      const ChoiceRules& rules) {
  core::validate(request);
  if (rules.forced.empty()) return choose_freely(request, machine, rules.rank_order);
  if (core::can_build(rules.forced, request)) return {rules.forced, "named by the setting plan"};
  auto choice = choose_freely(request, machine, rules.rank_order);
  choice.reason += fmt::format("; {}, which the setting plan names, cannot serve it", rules.forced);
  return choice;
}

}  // namespace tugline::comm

// SPDX-License-Identifier: Apache-2.0
// The part of the checker that looks at every step alone.
#include <fmt/format.h>

#include "core/plan/checker.h"
#include "core/plan/groups.h"
#include "core/plan/print.h"

namespace tugline::core {

namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 48;
constexpr std::uint64_t kMostElementBytes = 4096;
constexpr std::size_t kMostChannels = 64;

std::string blocks_problem(const Plan& plan);

std::string header_problem(const Plan& plan) {
  if (static_cast<int>(plan.collective) >= kCollectiveCount) {
    return fmt::format("collective {} does not exist", static_cast<int>(plan.collective));
  }
  if (static_cast<int>(plan.order) >= kReductionOrderCount) {
    return fmt::format("reduction order {} does not exist", static_cast<int>(plan.order));
  }
  if (plan.ranks < 1 || plan.ranks > kMaxPlanRanks) {
    return fmt::format("ranks is {}, must be 1 to {}", plan.ranks, kMaxPlanRanks);
  }
  if (plan.collective == Collective::send_recv && plan.ranks != 2) {
    return fmt::format("ranks is {}, a send_recv has 2", plan.ranks);
  }
  if (plan.trades_scratch && plan.ranks != 2) {
    return fmt::format("trades_scratch is true, but there are {} ranks: two can trade", plan.ranks);
  }
  if (plan.root < 0 || plan.root >= plan.ranks) {
    return fmt::format("root is {}, must be 0 to {}", plan.root, plan.ranks - 1);
  }
  if (plan.element_bytes < 1 || plan.element_bytes > kMostElementBytes) {
    return fmt::format("element_bytes is {}, must be 1 to {}", plan.element_bytes, kMostElementBytes);
  }
  if (plan.bytes > kMostBytes || plan.bytes % plan.element_bytes != 0) {
    return fmt::format("bytes is {}, must be a multiple of element_bytes {} and at most {}", plan.bytes,
                       plan.element_bytes, kMostBytes);
  }
  if (plan.scratch_bytes > kMostBytes) {
    return fmt::format("scratch_bytes is {}, must be at most {}", plan.scratch_bytes, kMostBytes);
  }
  if (plan.programs.size() != static_cast<std::size_t>(plan.ranks)) {
    return fmt::format("there are programs for {} ranks, must be {}", plan.programs.size(), plan.ranks);
  }
  for (std::size_t rank = 0; rank < plan.programs.size(); ++rank) {
    if (plan.programs[rank].size() > kMostChannels) {
      return fmt::format("rank {} has {} channels, at most {} are allowed", rank, plan.programs[rank].size(),
                         kMostChannels);
    }
  }
  const bool reducing = reduces(plan.collective);
  if (reducing != (plan.order != ReductionOrder::none)) {
    return fmt::format("order is {}, but {} {}", name_of(plan.order), name_of(plan.collective),
                       reducing ? "reduces" : "reduces nothing");
  }
  if (plan.order == ReductionOrder::tree_order && plan.collective != Collective::reduce) {
    return fmt::format("order is tree_order, which only reduce has, not {}", name_of(plan.collective));
  }
  if (plan.order == ReductionOrder::recursive_order && plan.collective != Collective::all_reduce) {
    return fmt::format("order is recursive_order, which only all_reduce has, not {}",
                       name_of(plan.collective));
  }
  if (!plan.groups.empty() || plan.order == ReductionOrder::group_order) {
    if (auto problem = problem_of_groups(plan.groups, plan.ranks); !problem.empty()) return problem;
  }
  if (plan.average && !reducing) {
    return fmt::format("average is true, but {} reduces nothing", name_of(plan.collective));
  }
  return blocks_problem(plan);
}

/// What is wrong with the sizes of blocks; empty when nothing is.
std::string blocks_problem(const Plan& plan) {
  const auto n = static_cast<std::size_t>(plan.ranks);
  const bool pairs = plan.collective == Collective::all_to_all_v;
  const std::size_t wanted = !has_blocks(plan.collective) ? 0 : pairs ? n * n : n;
  if (plan.blocks.size() != wanted) {
    return fmt::format("blocks has {} sizes, {} over {} ranks has {}", plan.blocks.size(),
                       name_of(plan.collective), plan.ranks, wanted);
  }
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < wanted; ++i) {
    const std::uint64_t bytes = plan.blocks[i];
    if (bytes % plan.element_bytes != 0 || bytes > kMostBytes || (sum += bytes) > kMostBytes) {
      return fmt::format("blocks[{}] is {}, must be a multiple of element_bytes {}, all together at most {}",
                         i, bytes, plan.element_bytes, kMostBytes);
    }
  }
  if (wanted > 0 && sum != plan.bytes) {
    return fmt::format("bytes is {}, must be the sum of all blocks, {}", plan.bytes, sum);
  }
  for (std::size_t i = 0; pairs && plan.in_place && i < n * n; ++i) {
    const std::size_t back = i % n * n + i / n;
    if (plan.blocks[i] == plan.blocks[back]) continue;
    return fmt::format("blocks[{}] is {} and blocks[{}] {}, but in place both ways are of one size", i,
                       plan.blocks[i], back, plan.blocks[back]);
  }
  return {};
}

/// Looks at one step of one rank.
class StepCheck {
 public:
  StepCheck(const Plan& plan, std::int32_t self, const Step& step) : plan_(plan), self_(self), step_(step) {}

  std::string problem() const {
    switch (step_.kind) {
      case StepKind::copy:
        return first({own_destination(), place("source", step_.source)});
      case StepKind::reduce:
        return first({own_destination(), place("source", step_.source), place("second", step_.second),
                      aligned("destination", step_.destination.offset),
                      aligned("source", step_.source.offset), aligned("second", step_.second.offset),
                      aligned("bytes", step_.bytes), more_operands()});
      case StepKind::put:
        return first({foreign_destination(), place("source", step_.source)});
      case StepKind::scale:
        return first({own_destination(), aligned("destination", step_.destination.offset),
                      aligned("bytes", step_.bytes), averaging()});
      case StepKind::put_packet:
        return first({payload(0), place("source", step_.source)});
      case StepKind::copy_packet:
        return first({peer(Peers::or_self), own_destination(), payload(step_.source.offset)});
      case StepKind::reduce_packet:
        return first({peer(Peers::any), own_destination(), payload(step_.source.offset),
                      aligned("destination", step_.destination.offset),
                      aligned("source", step_.source.offset), aligned("bytes", step_.bytes)});
      case StepKind::signal:
        return first({peer(Peers::or_everyone), flag()});
      case StepKind::wait:
        return first({peer(Peers::others), flag()});
    }
    return fmt::format("kind {} does not exist", static_cast<int>(step_.kind));
  }

 private:
  enum class Peers { others, or_self, or_everyone, any };

  static std::string first(std::initializer_list<std::string> problems) {
    for (const std::string& problem : problems) {
      if (!problem.empty()) return problem;
    }
    return {};
  }

  std::uint64_t limit(const Place& place) const {
    if (place.space == Space::scratch) return plan_.scratch_bytes;
    return place.space == Space::input ? plan_.input_bytes(place.rank) : plan_.output_bytes(place.rank);
  }

  std::string place(std::string_view field, const Place& place) const {
    if (static_cast<int>(place.space) >= kSpaceCount) {
      return fmt::format("{}: space {} does not exist", field, static_cast<int>(place.space));
    }
    if (place.rank < 0 || place.rank >= plan_.ranks) {
      return fmt::format("{}: rank {} does not exist, ranks are 0 to {}", field, place.rank, plan_.ranks - 1);
    }
    if (place.space != Space::scratch && place.rank != self_ && !plan_.direct) {
      return fmt::format("{}: {} of rank {} may be touched by that rank only, but in a direct plan", field,
                         name_of(place.space), place.rank);
    }
    const std::uint64_t most = limit(place);
    if (place.offset > most || step_.bytes > most - place.offset) {
      return fmt::format("{}: {} bytes from {} on leave the {} of {} bytes", field, step_.bytes, place.offset,
                         name_of(place.space), most);
    }
    return {};
  }
  std::string own_destination() const {
    if (step_.destination.rank != self_) {
      return fmt::format("destination: rank {} is another rank; only put writes there",
                         step_.destination.rank);
    }
    if (step_.destination.space == Space::input) return "destination: an input is never written";
    return place("destination", step_.destination);
  }
  std::string foreign_destination() const {
    const Space space = step_.destination.space;
    const bool may = space == Space::scratch || (space == Space::output && plan_.direct);
    if (!may || step_.destination.rank == self_) {
      return fmt::format("destination: {} of rank {}; put writes to another rank's scratch{}", name_of(space),
                         step_.destination.rank, plan_.direct ? " or output" : "");
    }
    return place("destination", step_.destination);
  }
  std::string aligned(std::string_view field, std::uint64_t value) const {
    if (value % plan_.element_bytes == 0) return {};
    return fmt::format("{}: {} is not a multiple of element_bytes {}", field, value, plan_.element_bytes);
  }
  std::string more_operands() const {
    if (step_.more.size() > static_cast<std::size_t>(kMaxPlanRanks) - 2)
      return fmt::format("more: {} operands, {} are allowed", step_.more.size(), kMaxPlanRanks - 2);
    for (const Place& operand : step_.more)
      if (auto problem = first({place("more", operand), aligned("more", operand.offset)}); !problem.empty())
        return problem;
    return {};
  }
  std::string averaging() const {
    return plan_.average ? std::string() : "scale: average is false in this plan";
  }
  std::string payload(std::uint64_t offset) const {
    const std::uint64_t most = packet_bytes(plan_.ranks);
    if (offset <= most && step_.bytes <= most - offset) return {};
    return fmt::format("bytes: {} from {} on do not fit a packet of {}", step_.bytes, offset, most);
  }
  std::string peer(Peers allowed) const {
    if ((allowed == Peers::or_everyone || allowed == Peers::any) && step_.peer == kEveryone) return {};
    if (step_.peer < 0 || step_.peer >= plan_.ranks) {
      return fmt::format("peer: rank {} does not exist, ranks are 0 to {}", step_.peer, plan_.ranks - 1);
    }
    if (allowed != Peers::or_self && allowed != Peers::any && step_.peer == self_)
      return fmt::format("peer: rank {} is this rank", self_);
    return {};
  }
  std::string flag() const {
    if (step_.flag >= kFlagsPerPair) {
      return fmt::format("flag: {} does not exist, flags are 0 to {}", step_.flag, kFlagsPerPair - 1);
    }
    if (step_.value == 0) return "value: flags start at 0, use 1 or more";
    if (step_.value <= kMaxFlagValue) return {};
    return fmt::format("value: {} is above the largest flag value {}", step_.value, kMaxFlagValue);
  }

  const Plan& plan_;
  std::int32_t self_;
  const Step& step_;
};

}  // namespace

CheckResult check_structure(const Plan& plan) {
  if (auto problem = header_problem(plan); !problem.empty()) return {false, problem};
  for (std::int32_t rank = 0; rank < plan.ranks; ++rank) {
    const auto& channels = plan.programs[static_cast<std::size_t>(rank)];
    for (std::size_t channel = 0; channel < channels.size(); ++channel) {
      for (std::size_t index = 0; index < channels[channel].size(); ++index) {
        const Step& step = channels[channel][index];
        if (auto problem = StepCheck(plan, rank, step).problem(); !problem.empty()) {
          return {false, fmt::format("rank {} channel {} step {} ({}): {}", rank, channel, index,
                                     print(step, rank), problem)};
        }
      }
    }
  }
  return {};
}

}  // namespace tugline::core

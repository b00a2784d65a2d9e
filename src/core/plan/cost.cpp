// SPDX-License-Identifier: Apache-2.0
#include "core/plan/cost.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/plan/step_price.h"

namespace tugline::core {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Runs the programs in simulated time. An agent (a channel of a rank) runs until it waits; with fewer cores
/// than agents it leaves its core there, and the agent that has been ready longest takes the core that has
/// been free longest.
class Simulation {
 public:
  Simulation(const Plan& plan, const CostModel& model) : plan_(plan), model_(model) {
    for (std::size_t rank = 0; rank < plan.programs.size(); ++rank) {
      const std::size_t first = agents_.size();
      for (const Program& program : plan.programs[rank]) {
        agents_.push_back({static_cast<std::int32_t>(rank), &program});
      }
      agents_of_.emplace_back(first, agents_.size());
    }
    unfinished_ = agents_.size();
    if (static_cast<std::size_t>(std::max(model.cores, 1)) < agents_.size()) {
      cores_.assign(static_cast<std::size_t>(std::max(model.cores, 1)), 0);
    }
    packets_.assign(static_cast<std::size_t>(plan.ranks), kNever);
  }

  double seconds() {
    for (std::size_t index = 0; index < agents_.size(); ++index) block(index);
    double end = 0;
    while (!runnable_.empty()) {
      const auto [ready, index] = *runnable_.begin();
      runnable_.erase(runnable_.begin());
      run(index, ready);
      end = std::max(end, agents_[index].time);
    }
    return unfinished_ == 0 ? end : kNever;
  }

 private:
  struct Agent {
    std::int32_t rank = 0;
    const Program* program = nullptr;
    std::size_t next = 0;
    double time = 0;
    bool blocked = false;  ///< on something that is not yet on its way
    bool done() const noexcept { return next == program->size(); }
    const Step& step() const noexcept { return (*program)[next]; }
  };
  using FlagKey = std::tuple<std::int32_t, std::int32_t, std::uint8_t>;  // from, to, flag
  using Arrivals = std::vector<std::pair<std::uint32_t, double>>;        // value, time

  /// The agent waits: until a known time, or for something that is not yet on its way.
  void block(std::size_t index) {
    Agent& agent = agents_[index];
    if (agent.done()) {
      --unfinished_;
      return;
    }
    const double there = arrival(agent);
    agent.blocked = there == kNever;
    if (!agent.blocked) runnable_.emplace(std::max(agent.time, there), index);
  }

  void run(std::size_t index, double ready) {
    Agent& agent = agents_[index];
    const auto core = std::min_element(cores_.begin(), cores_.end());
    agent.time = core == cores_.end() ? ready : std::max(ready, *core) + model_.switch_seconds;
    while (!agent.done() && arrival(agent) <= agent.time) {
      agent.time += cost(agent);
      publish(agent);
      ++agent.next;
    }
    if (core != cores_.end()) *core = agent.time;
    block(index);
  }

  /// When what the agent's next step waits for is there; 0 if it waits for nothing.
  double arrival(const Agent& agent) const {
    const Step& step = agent.step();
    if (step.kind == StepKind::copy_packet || step.kind == StepKind::reduce_packet) {
      if (step.peer == kEveryone) return all_packets(agent.rank);
      // Its own packet does not travel.
      const double sent = packets_[static_cast<std::size_t>(step.peer)];
      return step.peer == agent.rank ? sent - model_.packet_seconds : sent;
    }
    if (step.kind != StepKind::wait) return 0;
    const auto found = flags_.find({step.peer, agent.rank, step.flag});
    if (found == flags_.end()) return kNever;
    const auto reached =
        std::lower_bound(found->second.begin(), found->second.end(), step.value,
                         [](const auto& raised, std::uint32_t value) { return raised.first < value; });
    return reached == found->second.end() ? kNever : reached->second;
  }

  double all_packets(std::int32_t rank) const {
    double last = 0;
    for (std::size_t peer = 0; peer < packets_.size(); ++peer) {
      const double own = static_cast<std::int32_t>(peer) == rank ? model_.packet_seconds : 0;
      last = std::max(last, packets_[peer] - own);
    }
    return last;
  }

  void publish(const Agent& agent) {
    const Step& step = agent.step();
    if (step.kind == StepKind::put_packet) {
      packets_[static_cast<std::size_t>(agent.rank)] = agent.time + model_.packet_seconds;
      for (std::int32_t peer = 0; peer < plan_.ranks; ++peer) wake(peer);
    }
    if (step.kind != StepKind::signal) return;
    for (std::int32_t peer = 0; peer < plan_.ranks; ++peer) {
      if (peer == agent.rank || (step.peer != kEveryone && step.peer != peer)) continue;
      flags_[{agent.rank, peer, step.flag}].emplace_back(
          step.value,
          agent.time + (model_.is_far(agent.rank, peer) ? model_.far_signal_seconds : model_.signal_seconds));
      wake(peer);
    }
  }

  void wake(std::int32_t rank) {
    const auto [first, last] = agents_of_[static_cast<std::size_t>(rank)];
    for (std::size_t index = first; index < last; ++index) {
      if (agents_[index].blocked) block(index);
    }
  }

  double cost(const Agent& agent) const {
    return step_seconds(agent.step(), agent.rank, plan_.ranks, model_);
  }

  const Plan& plan_;
  const CostModel& model_;
  std::vector<Agent> agents_;
  std::vector<std::pair<std::size_t, std::size_t>> agents_of_;  ///< [rank]: first, behind last
  std::set<std::pair<double, std::size_t>> runnable_;           ///< ready time, agent
  std::size_t unfinished_ = 0;
  std::vector<double> cores_;  ///< when each is free; empty when every agent has its own
  std::vector<double> packets_;
  std::map<FlagKey, Arrivals> flags_;
};

}  // namespace

double predict_seconds(const Plan& plan, const CostModel& model) {
  return Simulation(plan, model).seconds();
}

}  // namespace tugline::core

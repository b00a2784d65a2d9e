// SPDX-License-Identifier: Apache-2.0
#include "explorer.h"

#include <unordered_map>
#include <vector>

namespace tugline::core::model {
namespace {

/// 128 bits of hash stand for a state: with ten million states the chance that two are confused is 1e-25.
struct Key {
  std::uint64_t low;
  std::uint64_t high;
  friend bool operator==(const Key&, const Key&) = default;
};
struct KeyHash {
  std::size_t operator()(const Key& key) const noexcept { return key.low; }
};

struct Frame {
  State state;
  std::uint32_t id;
  std::vector<Action> actions;
  std::size_t next = 0;
};

std::string story(const std::vector<Frame>& path) {
  std::string text;
  for (const auto& frame : path)
    if (frame.next > 0) text += "\n  " + World::describe(frame.actions[frame.next - 1]);
  return text;
}

/// States from which no end can be reached: there somebody hangs.
std::uint64_t count_hanging(std::uint32_t states,
                            const std::vector<std::pair<std::uint32_t, std::uint32_t>>& edges,
                            const std::vector<std::uint32_t>& ends) {
  // Compressed rows of predecessors.
  std::vector<std::uint32_t> start(states + 1, 0);
  for (const auto& edge : edges) ++start[edge.second + 1];
  for (std::uint32_t i = 0; i < states; ++i) start[i + 1] += start[i];
  std::vector<std::uint32_t> from(edges.size());
  auto fill = start;
  for (const auto& edge : edges) from[fill[edge.second]++] = edge.first;

  std::vector<bool> good(states, false);
  auto work = ends;
  for (auto id : ends) good[id] = true;
  std::uint64_t reached = ends.size();
  while (!work.empty()) {
    const auto id = work.back();
    work.pop_back();
    for (auto i = start[id]; i < start[id + 1]; ++i) {
      if (good[from[i]]) continue;
      good[from[i]] = true;
      ++reached;
      work.push_back(from[i]);
    }
  }
  return states - reached;
}

}  // namespace

Exploration explore(const Protocol& protocol, const Options& options, std::uint64_t limit) {
  World world(protocol, options);
  Exploration result;
  std::unordered_map<Key, std::uint32_t, KeyHash> known;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;  // without faults
  std::vector<std::uint32_t> ends;
  std::vector<Frame> path;

  auto visit = [&](const State& state) -> std::pair<std::uint32_t, bool> {
    const Key key{world.hash(state, 1), world.hash(state, 0x123456789abcdef)};
    const auto [at, fresh] = known.emplace(key, static_cast<std::uint32_t>(known.size()));
    if (fresh && world.finished(state)) ends.push_back(at->second);
    return {at->second, fresh};
  };
  auto enter = [&](const State& state, std::uint32_t id) {
    path.push_back({state, id, {}, 0});
    world.actions(path.back().state, path.back().actions);
  };

  const auto initial = world.initial();
  enter(initial, visit(initial).first);
  while (!path.empty()) {
    auto& frame = path.back();
    if (frame.next == frame.actions.size()) {
      path.pop_back();
      continue;
    }
    const auto action = frame.actions[frame.next++];
    auto state = frame.state;
    try {
      world.apply(state, action);
    } catch (const Violation& violation) {
      result.states = known.size();
      result.problem = violation.what() + story(path);
      return result;
    }
    ++result.transitions;
    const auto [id, fresh] = visit(state);
    if (action.kind == Action::Kind::step && id != frame.id) edges.emplace_back(frame.id, id);
    if (fresh) enter(state, id);
    if (known.size() > limit) {
      result.problem = "more than " + std::to_string(limit) + " states";
      break;
    }
  }
  result.states = known.size();
  if (result.problem.empty()) {
    const auto hanging = count_hanging(static_cast<std::uint32_t>(known.size()), edges, ends);
    if (hanging != 0)
      result.problem = "somebody hangs: no end can be reached from " + std::to_string(hanging) + " states";
  }
  return result;
}

}  // namespace tugline::core::model

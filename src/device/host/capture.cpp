// SPDX-License-Identifier: Apache-2.0
#include "device/host/capture.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "device/refusals.h"

namespace tugline::device::host {
void Capture::require_sound() const {
  if (!broken_.empty()) refuse_in_capture("the capture was broken by: " + broken_, where_);
  if (ended_) refuse_in_capture("the capture has ended", where_);
}

void Capture::merge(std::vector<std::size_t>& clock, const std::vector<std::size_t>& other) {
  if (clock.size() < other.size()) clock.resize(other.size(), 0);
  for (std::size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

std::size_t Capture::add_lane() {
  std::lock_guard lock(mutex_);
  require_sound();
  lanes_.emplace_back();
  return lanes_.size() - 1;
}

void Capture::add(std::size_t lane, Work work) {
  std::lock_guard lock(mutex_);
  require_sound();
  lanes_[lane].nodes.emplace_back(std::move(work));
}

CapturedPlace Capture::record(std::size_t lane) {
  std::lock_guard lock(mutex_);
  require_sound();
  Lane& own = lanes_[lane];
  CapturedPlace place;
  place.lane = lane;
  place.signal = signals_++;
  own.nodes.emplace_back(SignalNode{place.signal});
  place.clock = own.clock;
  if (place.clock.size() <= lane) place.clock.resize(lane + 1, 0);
  place.clock[lane] = own.nodes.size();
  return place;
}

void Capture::await(std::size_t lane, const CapturedPlace& place) {
  std::lock_guard lock(mutex_);
  require_sound();
  Lane& own = lanes_[lane];
  bool known = place.lane == lane ||
               (place.lane < own.clock.size() && own.clock[place.lane] >= place.clock[place.lane]);
  if (known) return;
  own.nodes.emplace_back(AwaitNode{place.signal});
  merge(own.clock, place.clock);
}

void Capture::add_graph(std::size_t lane, const GraphBody& graph) {
  std::lock_guard lock(mutex_);
  require_sound();
  const std::size_t first_signal = signals_;
  signals_ += graph.signals;
  auto append = [&](std::vector<Node>& nodes, const std::vector<Node>& added) {
    for (const Node& node : added) {
      nodes.push_back(node);
      if (auto* signal = std::get_if<SignalNode>(&nodes.back())) signal->signal += first_signal;
      if (auto* await = std::get_if<AwaitNode>(&nodes.back())) await->signal += first_signal;
    }
  };
  append(lanes_[lane].nodes, graph.lanes[0]);
  for (std::size_t i = 1; i < graph.lanes.size(); ++i) {
    Lane& added = lanes_.emplace_back();
    added.from_graph = true;
    append(added.nodes, graph.lanes[i]);
  }
}

void Capture::break_off(const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (!ended_ && broken_.empty()) broken_ = reason;
}

bool Capture::ended() const {
  std::lock_guard lock(mutex_);
  return ended_;
}

GraphBody Capture::finish() {
  std::lock_guard lock(mutex_);
  if (ended_) refuse_in_capture("the capture has ended", where_);
  ended_ = true;
  if (!broken_.empty()) refuse_in_capture("the capture was broken by: " + broken_, where_);
  const std::vector<std::size_t>& joined = lanes_[0].clock;
  for (std::size_t i = 1; i < lanes_.size(); ++i) {
    if (lanes_[i].from_graph) continue;
    // Records behind the join are harmless; work behind it would be lost to the launching stream.
    std::size_t seen = i < joined.size() ? joined[i] : 0;
    const std::vector<Node>& nodes = lanes_[i].nodes;
    bool left = std::any_of(nodes.begin() + static_cast<std::ptrdiff_t>(seen), nodes.end(),
                            [](const Node& node) { return !std::holds_alternative<SignalNode>(node); });
    if (left) {
      throw Error(
          ErrorCode::invalid_usage,
          fmt::format("the capture ended while the stream that joined it as number {} has work that the "
                      "capturing stream does not wait for ({} of {} steps joined)",
                      i, seen, nodes.size()),
          "record an event on that stream behind its work, and let the capturing stream wait for it",
          {.operation = "end_capture", .device = where_});
    }
  }
  GraphBody body;
  body.signals = signals_;
  for (Lane& lane : lanes_) body.lanes.push_back(std::move(lane.nodes));
  lanes_.clear();
  return body;
}

}  // namespace tugline::device::host

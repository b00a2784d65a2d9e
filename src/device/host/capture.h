// SPDX-License-Identifier: Apache-2.0
// Capture: what is enqueued on a capturing stream goes into a graph. Each stream of the capture is a lane;
// events between them become signals. A vector clock per lane knows what it has waited for, so that redundant
// waits vanish and a lane that was never joined back is found.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "device/failure.h"

namespace tugline::device::host {

struct SignalNode {
  std::size_t signal;
};
struct AwaitNode {
  std::size_t signal;
};
using Node = std::variant<Work, SignalNode, AwaitNode>;

/// Lane 0 runs on the launching stream. Every other lane begins with an await and is awaited by lane 0 in the
/// end, directly or through others.
struct GraphBody {
  std::vector<std::vector<Node>> lanes;
  std::size_t signals = 0;
};

class Capture;

/// Where an event was recorded in a capture.
struct CapturedPlace {
  std::shared_ptr<Capture> capture;
  std::size_t lane = 0;
  std::size_t signal = 0;
  std::vector<std::size_t> clock;  ///< nodes of each lane that are known to come before
};

/// Thread-safe. Operations on a broken capture throw invalid_usage that names what broke it.
class Capture {
 public:
  explicit Capture(std::string where) : where_(std::move(where)) { add_lane(); }

  std::size_t add_lane();
  void add(std::size_t lane, Work work);
  /// The lane's place now. The caller fills in `capture`.
  CapturedPlace record(std::size_t lane);
  void await(std::size_t lane, const CapturedPlace& place);
  /// Puts a copy of the graph into the lane, its further lanes beside it.
  void add_graph(std::size_t lane, const GraphBody& graph);

  /// Marks the capture as broken; the first reason stays. No effect when ended.
  void break_off(const std::string& reason);
  /// True after finish(): the streams of the capture are free again.
  bool ended() const;
  /// Ends the capture and gives its body. Throws invalid_usage if it was broken, or if a lane has work that
  /// lane 0 has not waited for.
  GraphBody finish();

 private:
  struct Lane {
    std::vector<Node> nodes;
    std::vector<std::size_t> clock;
    bool from_graph =
        false;  ///< a lane of a graph that was launched into the capture; joined by construction
  };
  void require_sound() const;
  static void merge(std::vector<std::size_t>& clock, const std::vector<std::size_t>& other);

  const std::string where_;
  mutable std::mutex mutex_;
  std::vector<Lane> lanes_;
  std::size_t signals_ = 0;
  std::string broken_;
  bool ended_ = false;
};

}  // namespace tugline::device::host

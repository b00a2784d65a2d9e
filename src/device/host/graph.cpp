// SPDX-License-Identifier: Apache-2.0
#include "device/host/graph.h"

#include <atomic>
#include <utility>

#include "device/host/stream.h"

namespace tugline::device::host {
namespace {

// One run through the lanes. Once anything fails, later work of all lanes is skipped; signals still fire, so
// no lane is left waiting.
class Replay {
 public:
  Replay(const GraphBody& body, const std::string& where, FailurePtr failure)
      : body_(body),
        where_(where),
        signals_(std::make_unique<EventRecord[]>(body.signals)),
        failed_(failure != nullptr),
        failure_(std::move(failure)) {}

  void run_lane(std::size_t lane) noexcept {
    for (const Node& node : body_.lanes[lane]) {
      if (const auto* work = std::get_if<Work>(&node)) {
        if (failed_.load(std::memory_order_acquire)) continue;
        if (FailurePtr failure = execute(*work, where_)) fail(std::move(failure));
      } else if (const auto* signal = std::get_if<SignalNode>(&node)) {
        signals_[signal->signal].complete(nullptr);
      } else if (const auto* await = std::get_if<AwaitNode>(&node)) {
        signals_[await->signal].wait();
      }
    }
  }

  FailurePtr failure() {
    std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  void fail(FailurePtr failure) noexcept {
    std::lock_guard lock(mutex_);
    if (failure_ == nullptr) failure_ = std::move(failure);
    failed_.store(true, std::memory_order_release);
  }

  const GraphBody& body_;
  const std::string& where_;
  std::unique_ptr<EventRecord[]> signals_;
  std::atomic<bool> failed_;
  std::mutex mutex_;
  FailurePtr failure_;
};

}  // namespace

HostGraph::HostGraph(GraphBody body, std::string where) : body_(std::move(body)), where_(std::move(where)) {
  for (std::size_t lane = 1; lane < body_.lanes.size(); ++lane) {
    helpers_.push_back(std::make_unique<HostStream>(where_ + " graph lane"));
    helpers_.back()->start();
  }
}

HostGraph::~HostGraph() = default;

bool HostGraph::is_orphaned() const noexcept {
  return !helpers_.empty() && helpers_.front()->is_orphaned();
}

HostGraph::Turn HostGraph::next_launch(std::shared_ptr<EventRecord> finished) {
  Turn turn{std::unique_lock(launch_mutex_), nullptr};
  turn.previous = std::exchange(last_launch_, std::move(finished));
  return turn;
}

FailurePtr HostGraph::replay(FailurePtr failure) noexcept {
  if (helpers_.empty()) {
    for (const Node& node : body_.lanes[0]) {
      if (failure != nullptr) break;
      if (const auto* work = std::get_if<Work>(&node)) failure = execute(*work, where_);
    }
    return failure;
  }
  auto replay = std::make_shared<Replay>(body_, where_, std::move(failure));
  for (std::size_t i = 0; i < helpers_.size(); ++i) {
    helpers_[i]->launch(HostTask([replay, lane = i + 1] {
      replay->run_lane(lane);
      return Status::success();
    }));
  }
  replay->run_lane(0);
  return replay->failure();
}

}  // namespace tugline::device::host

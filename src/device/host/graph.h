// SPDX-License-Identifier: Apache-2.0
// A graph that can be launched: the captured body, and a helper stream for each lane beside the launching
// one.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/host/capture.h"
#include "device/host/event.h"

namespace tugline::device::host {

class HostStream;

/// Shared by its handle and by every queued launch, so that it lives until the last of them is done.
class HostGraph {
 public:
  /// Starts the helpers' threads: their failure is reported here instead of inside a replay, where lanes that
  /// already run would wait for ones that cannot start.
  HostGraph(GraphBody body, std::string where);
  ~HostGraph();
  HostGraph(const HostGraph&) = delete;
  HostGraph& operator=(const HostGraph&) = delete;

  const GraphBody& body() const noexcept { return body_; }
  /// True in a forked child when the helpers' threads stayed in the parent.
  bool is_orphaned() const noexcept;

  /// Orders launches one behind the other, as CUDA does: gives the previous launch's end (null at first) and
  /// makes `finished` the end of this one. The lock is held while the launch is enqueued, so that the order
  /// here is the order in every queue.
  struct Turn {
    std::unique_lock<std::mutex> lock;
    std::shared_ptr<EventRecord> previous;
  };
  Turn next_launch(std::shared_ptr<EventRecord> finished);

  /// Replays on the calling executor and the helpers. With a failure given, everything is skipped. Returns
  /// the first failure.
  FailurePtr replay(FailurePtr failure) noexcept;

 private:
  const GraphBody body_;
  const std::string where_;
  std::mutex launch_mutex_;
  std::shared_ptr<EventRecord> last_launch_;
  std::vector<std::unique_ptr<HostStream>> helpers_;
};

}  // namespace tugline::device::host

// SPDX-License-Identifier: Apache-2.0
// Captures and graphs. CUDA records the order; what it cannot keep is kept here: the tasks of the host, the
// memory that copies go through, and why a capture was broken.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/cuda/task.h"

namespace tugline::device::cuda {

/// What the nodes of a graph refer to. CUDA holds it, too, until the last launch has ended.
struct GraphContents {
  std::vector<std::unique_ptr<Task>> tasks;
  std::vector<std::shared_ptr<std::byte>> staging;
  std::shared_ptr<FailureScope> scope;
};

class CudaGraph;
/// Graphs that are part of another one.
using GraphParts = std::vector<std::shared_ptr<CudaGraph>>;

/// One capture, shared by the streams that take part. Thread-safe; operations on a broken one throw
/// Error{invalid_usage} that names what broke it.
class Capture {
 public:
  Capture(CUcontext context, CUstream origin, std::string where);
  ~Capture();

  /// The stream that began it, and alone may end it.
  CUstream origin() const noexcept { return origin_; }
  /// The first reason stays. No effect when ended.
  void break_off(const std::string& reason);
  bool ended() const;
  void require_sound() const;
  /// A result of the driver during the capture: anything but success breaks it and throws.
  void check(CUresult result, const char* operation);
  /// A ticket of the graph's own scope.
  Ticket next_ticket();
  /// A task node behind what `stream` has captured so far.
  void add_task(CUstream stream, HostTask work, const std::string& where);
  /// Puts the graph behind what `stream` has captured so far.
  void add_graph(CUstream stream, std::shared_ptr<CudaGraph> graph);
  void keep(std::shared_ptr<std::byte> staging);
  const std::shared_ptr<FailureScope>& scope() const noexcept { return contents_->scope; }
  /// A stream of the capture whose owner has gone: destroyed once the capture has ended.
  void adopt(CUstream stream);
  /// Ends it at its first stream and gives the graph. Throws if it was broken, or has streams that were not
  /// joined; ended all the same.
  std::shared_ptr<CudaGraph> finish();
  /// Ends it without a graph: its first stream goes.
  void abandon() noexcept;

 private:
  struct Place {
    CUgraph graph;
    const CUgraphNode* nodes;
    std::size_t count;
  };
  Place place_of(CUstream stream);
  void move_on(CUstream stream, CUgraphNode node);
  void require_sound_locked() const;

  const CUcontext context_;
  const CUstream origin_;
  const std::string where_;
  mutable std::mutex mutex_;
  std::string broken_;
  bool ended_ = false;
  Ticket tickets_ = 0;
  const std::shared_ptr<GraphContents> contents_ = std::make_shared<GraphContents>();
  GraphParts parts_;
  /// Where each graph is used last in this one: its tasks must not run beside themselves.
  std::map<CudaGraph*, CUgraphNode> last_use_;
  std::vector<CUstream> orphans_;
};

/// A graph that can be launched.
class CudaGraph {
 public:
  CudaGraph(CUcontext context, CUgraph graph, std::shared_ptr<GraphContents> contents, GraphParts parts);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;

  CUgraph definition() const noexcept { return graph_; }
  CUgraphExec executable() const noexcept { return executable_; }
  /// True if it or a part of it has tasks of the host, which may fail.
  bool has_tasks() const noexcept;
  /// Before a launch: whether all of it is to be skipped.
  void restart(const FailurePtr& failure);
  /// After a launch: its first failure, null if there was none.
  FailurePtr failure() const;

  /// This graph and all that are part of it, each once.
  std::vector<CudaGraph*> with_parts();
  /// Held while a launch is enqueued: launches of one graph, alone or as a part, run one after the other.
  std::vector<std::unique_lock<std::mutex>> lock_with_parts();
  /// Recorded behind the last launch that used restart(); guarded by that lock.
  CUevent last_gated() const noexcept { return last_gated_; }

 private:
  const CUcontext context_;
  CUgraph graph_;
  CUgraphExec executable_ = nullptr;
  CUevent last_gated_ = nullptr;
  const std::shared_ptr<GraphContents> contents_;
  const GraphParts parts_;
  std::mutex launching_;
};

}  // namespace tugline::device::cuda

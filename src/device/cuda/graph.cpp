// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "device/cuda/context.h"
#include "device/refusals.h"

namespace tugline::device::cuda {
namespace {

/// What the stream's next node would depend on; nothing where it is not captured any more.
std::vector<CUgraphNode> last_nodes(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  if (driver().cuStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &edges, &count) != CUDA_SUCCESS ||
      status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    return {};
  return {nodes, nodes + count};
}

/// True if nothing in the graph is behind `end` or beside it: every node without a successor is one of these.
bool is_joined(CUgraph graph, const std::vector<CUgraphNode>& end) {
  std::size_t count = 0;
  check(driver().cuGraphGetNodes(graph, nullptr, &count), "look-up of a graph's nodes");
  std::vector<CUgraphNode> nodes(count);
  check(driver().cuGraphGetNodes(graph, nodes.data(), &count), "look-up of a graph's nodes");
  return std::all_of(nodes.begin(), nodes.end(), [&](CUgraphNode node) {
    std::size_t successors = 0;
    check(driver().cuGraphNodeGetDependentNodes(node, nullptr, nullptr, &successors),
          "look-up of a graph's edges");
    return successors != 0 || std::find(end.begin(), end.end(), node) != end.end();
  });
}

void CUDA_CB release_contents(void* held) {
  delete static_cast<std::shared_ptr<GraphContents>*>(held);
}

}  // namespace

Capture::Capture(CUcontext context, CUstream origin, std::string where)
    : context_(context), origin_(origin), where_(std::move(where)) {
  contents_->scope = std::make_shared<FailureScope>(make_cell());
}

Capture::~Capture() {
  for (CUstream stream : orphans_) (void)driver().cuStreamDestroy(stream);
}

void Capture::break_off(const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (!ended_ && broken_.empty()) broken_ = reason;
}

bool Capture::ended() const {
  std::lock_guard lock(mutex_);
  return ended_;
}

void Capture::require_sound() const {
  std::lock_guard lock(mutex_);
  require_sound_locked();
}

void Capture::require_sound_locked() const {
  if (!broken_.empty()) refuse_in_capture("the capture was broken by: " + broken_, where_);
  if (ended_) refuse_in_capture("the capture has ended", where_);
}

void Capture::check(CUresult result, const char* operation) {
  if (result == CUDA_SUCCESS) return;
  const std::string reason = fmt::format("{}: {}", operation, text_of(result));
  break_off(reason);
  refuse_in_capture("the capture was broken by: " + reason, where_, static_cast<long>(result));
}

Ticket Capture::next_ticket() {
  std::lock_guard lock(mutex_);
  require_sound_locked();
  return ++tickets_;
}

Capture::Place Capture::place_of(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  Place place{};
  const CUgraphEdgeData* edges = nullptr;
  check(
      driver().cuStreamGetCaptureInfo(stream, &status, &id, &place.graph, &place.nodes, &edges, &place.count),
      "look-up of the capture");
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) check(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "capture");
  return place;
}

void Capture::move_on(CUstream stream, CUgraphNode node) {
  check(driver().cuStreamUpdateCaptureDependencies(stream, &node, nullptr, 1,
                                                   CU_STREAM_SET_CAPTURE_DEPENDENCIES),
        "capture of a node");
}

void Capture::add_task(CUstream stream, HostTask work, const std::string& where) {
  auto task = std::make_unique<Task>();
  task->work = std::move(work);
  task->scope = scope();
  task->ticket = next_ticket();
  task->done = make_cell();
  task->where = where;
  task->repeats = true;
  check(driver().cuLaunchHostFunc(stream, post_task, task.get()), "capture of a task");
  // Waits for the thread that has the task, and makes the word ready for the next replay.
  CUstreamBatchMemOpParams steps[2] = {};
  steps[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  steps[0].waitValue.address = device_address(task->done->word);
  steps[0].waitValue.value = task->done_value;
  steps[0].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  steps[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  steps[1].writeValue.address = device_address(task->done->word);
  steps[1].writeValue.value = 0;
  CUDA_BATCH_MEM_OP_NODE_PARAMS parameters = {};
  parameters.ctx = context_;
  parameters.count = 2;
  parameters.paramArray = steps;
  const Place place = place_of(stream);
  CUgraphNode node = nullptr;
  check(driver().cuGraphAddBatchMemOpNode(&node, place.graph, place.nodes, place.count, &parameters),
        "capture of a task's end");
  move_on(stream, node);
  std::lock_guard lock(mutex_);
  contents_->tasks.push_back(std::move(task));
}

void Capture::add_graph(CUstream stream, std::shared_ptr<CudaGraph> graph) {
  require_sound();
  const Place place = place_of(stream);
  std::vector<CUgraphNode> after(place.nodes, place.nodes + place.count);
  const auto all = graph->with_parts();
  std::lock_guard lock(mutex_);
  for (CudaGraph* each : all) {
    const auto used = last_use_.find(each);
    if (used != last_use_.end() && std::find(after.begin(), after.end(), used->second) == after.end())
      after.push_back(used->second);
  }
  CUgraphNode node = nullptr;
  const CUresult added =
      driver().cuGraphAddChildGraphNode(&node, place.graph, after.data(), after.size(), graph->definition());
  if (added != CUDA_SUCCESS) {
    broken_ = fmt::format("capture of a graph: {}", text_of(added));
    require_sound_locked();
  }
  for (CudaGraph* each : all) last_use_[each] = node;
  parts_.push_back(std::move(graph));
  const CUresult moved = driver().cuStreamUpdateCaptureDependencies(stream, &node, nullptr, 1,
                                                                    CU_STREAM_SET_CAPTURE_DEPENDENCIES);
  if (moved != CUDA_SUCCESS) {
    broken_ = fmt::format("capture of a graph: {}", text_of(moved));
    require_sound_locked();
  }
}

void Capture::keep(std::shared_ptr<std::byte> staging) {
  std::lock_guard lock(mutex_);
  contents_->staging.push_back(std::move(staging));
}

void Capture::adopt(CUstream stream) {
  std::lock_guard lock(mutex_);
  orphans_.push_back(stream);
}

std::shared_ptr<CudaGraph> Capture::finish() {
  CUgraph graph = nullptr;
  const std::vector<CUgraphNode> end = last_nodes(origin_);
  CUresult result = driver().cuStreamEndCapture(origin_, &graph);
  // CUDA loses sight of streams that were not joined once nodes are added by hand.
  if (result == CUDA_SUCCESS && !is_joined(graph, end)) result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  std::string broken;
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    broken = broken_;
  }
  if (broken.empty() && result == CUDA_SUCCESS)
    return std::make_shared<CudaGraph>(context_, graph, contents_, std::move(parts_));
  if (graph != nullptr) (void)driver().cuGraphDestroy(graph);
  if (!broken.empty()) refuse_in_capture("the capture was broken by: " + broken, where_);
  if (result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
    refuse_in_capture(
        "a stream that joined the capture has work that its first stream does not wait for: record an event "
        "behind it, and wait for that",
        where_, static_cast<long>(result));
  refuse_in_capture(fmt::format("the capture could not be ended: {}", text_of(result)), where_,
                    static_cast<long>(result));
}

void Capture::abandon() noexcept {
  CUgraph graph = nullptr;
  if (driver().cuStreamEndCapture(origin_, &graph) == CUDA_SUCCESS) (void)driver().cuGraphDestroy(graph);
  std::lock_guard lock(mutex_);
  ended_ = true;
}

CudaGraph::CudaGraph(CUcontext context, CUgraph graph, std::shared_ptr<GraphContents> contents,
                     GraphParts parts)
    : context_(context), graph_(graph), contents_(std::move(contents)), parts_(std::move(parts)) {
  const auto made = [this](CUresult result, const char* operation) {
    if (result == CUDA_SUCCESS) return;
    if (executable_ != nullptr) (void)driver().cuGraphExecDestroy(executable_);
    (void)driver().cuGraphDestroy(graph_);
    cuda::check(result, operation);
  };
  auto held = std::make_unique<std::shared_ptr<GraphContents>>(contents_);
  CUuserObject object = nullptr;
  made(driver().cuUserObjectCreate(&object, held.get(), release_contents, 1,
                                   CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
       "retention of a graph's contents");
  (void)held.release();
  const CUresult retained = driver().cuGraphRetainUserObject(graph_, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
  if (retained != CUDA_SUCCESS) (void)driver().cuUserObjectRelease(object, 1);
  made(retained, "retention of a graph's contents");
  made(driver().cuGraphInstantiateWithFlags(&executable_, graph_, 0), "instantiation of a graph");
  made(driver().cuEventCreate(&last_gated_, CU_EVENT_DISABLE_TIMING), "creation of an event");
}

CudaGraph::~CudaGraph() {
  if (is_forked()) return;
  try {
    ContextGuard guard(context_);
    (void)driver().cuEventDestroy(last_gated_);
    (void)driver().cuGraphExecDestroy(executable_);
    (void)driver().cuGraphDestroy(graph_);
  } catch (const Error& error) {
    base::log(base::LogLevel::error, "a graph could not be destroyed: {}", error.what());
  }
}

bool CudaGraph::has_tasks() const noexcept {
  return !contents_->tasks.empty() ||
         std::any_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->has_tasks(); });
}

std::vector<CudaGraph*> CudaGraph::with_parts() {
  std::vector<CudaGraph*> all = {this};
  for (const auto& part : parts_) {
    for (CudaGraph* each : part->with_parts()) all.push_back(each);
  }
  // In one order, so that two launches never hold what the other one waits for.
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::vector<std::unique_lock<std::mutex>> CudaGraph::lock_with_parts() {
  std::vector<std::unique_lock<std::mutex>> locks;
  for (CudaGraph* each : with_parts()) locks.emplace_back(each->launching_);
  return locks;
}

void CudaGraph::restart(const FailurePtr& failure) {
  contents_->scope->restart(failure);
  for (const auto& part : parts_) part->restart(failure);
}

FailurePtr CudaGraph::failure() const {
  if (FailurePtr own = contents_->scope->first()) return own;
  for (const auto& part : parts_) {
    if (FailurePtr inner = part->failure()) return inner;
  }
  return nullptr;
}

}  // namespace tugline::device::cuda

// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <utility>

#include "base/log.h"
#include "device/cuda/context.h"
#include "device/cuda/move.h"

namespace tugline::device::cuda {
namespace {

[[noreturn]] void refuse(const char* operation, std::string what_failed, std::string what_to_do,
                         const std::string& where) {
  throw Error(ErrorCode::invalid_usage, std::move(what_failed), std::move(what_to_do),
              {.operation = operation, .device = where});
}

}  // namespace

CudaStream::CudaStream(int device, CUcontext context, std::string where)
    : CudaStream(device, context, std::move(where), nullptr) {
  check(driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "creation of a stream", where_);
}

CudaStream::CudaStream(int device, CUcontext context, std::string where, CUstream stream)
    : device_(device),
      context_(context),
      where_(std::move(where)),
      stream_(stream),
      owned_(stream == nullptr),
      scope_(std::make_shared<FailureScope>(make_cell())),
      done_(make_cell()) {}

CudaStream::~CudaStream() {
  if (!owned_ || stream_ == nullptr) return;
  std::shared_ptr<Capture> capture;
  {
    std::lock_guard lock(mutex_);
    capture = capture_locked();
  }
  if (capture != nullptr && capture->origin() == stream_) {
    capture->break_off("the end of its first stream");
    capture->abandon();
    capture = nullptr;
  }
  if (capture != nullptr) {
    capture->break_off("the end of a stream that takes part");
    capture->adopt(stream_);  // CUDA does not let go of it before
    return;
  }
  const CUresult result = driver().cuStreamSynchronize(stream_);
  if (result != CUDA_SUCCESS)
    base::log(base::LogLevel::error, "{} is destroyed after {}", where_, text_of(result));
  (void)driver().cuStreamDestroy(stream_);
}

std::shared_ptr<Capture> CudaStream::capture_locked() {
  if (capture_ != nullptr && capture_->ended()) capture_ = nullptr;
  return capture_;
}

bool CudaStream::is_captured_elsewhere_locked() {
  if (owned_ || capture_locked() != nullptr) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  check(driver().cuStreamIsCapturing(stream_, &status), "look-up of the capture", where_);
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void CudaStream::refuse_in_capture_locked(const char* operation) {
  const auto capture = capture_locked();
  if (capture == nullptr && is_captured_elsewhere_locked())
    refuse(operation, fmt::format("{} on a stream that its owner captures", operation),
           "end the capture first", where_);
  if (capture == nullptr) return;
  capture->break_off(operation);
  refuse(operation, fmt::format("{} on a stream that is being captured", operation),
         "end the capture first; it is broken now", where_);
}

void CudaStream::sync() {
  Ticket seen = 0;
  {
    std::lock_guard lock(mutex_);
    refuse_in_capture_locked("sync");
    seen = tickets_;
  }
  check(driver().cuStreamSynchronize(stream_), "sync", where_);
  std::lock_guard lock(mutex_);
  std::erase_if(retired_, [seen](const auto& entry) { return entry.first <= seen; });
  const FailurePtr failure = scope_->first();
  if (failure == nullptr) return;
  // Whoever is first throws it; what was enqueued behind it in the meantime still belongs to it.
  retired_.emplace_back(tickets_, std::exchange(scope_, std::make_shared<FailureScope>(make_cell())));
  throw Error(failure->error);
}

bool CudaStream::is_done() {
  std::lock_guard lock(mutex_);
  refuse_in_capture_locked("is_done");
  const CUresult result = driver().cuStreamQuery(stream_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  check(result, "is_done", where_);
  return true;
}

Status CudaStream::status() const {
  std::lock_guard lock(mutex_);
  const FailurePtr failure = scope_->first();
  return failure == nullptr ? Status::success() : failure->status;
}

void CudaStream::add_task_locked(HostTask work, TaskKind kind) {
  if (is_captured_elsewhere_locked()) {
    refuse("launch",
           "a task of the host, a copy of pageable memory or a graph on a stream that its owner captures",
           "capture with Stream::begin_capture(), or use memory that the device reaches", where_);
  }
  const Ticket ticket = ++tickets_;
  auto task = std::make_unique<Task>();
  task->work = std::move(work);
  task->scope = scope_;
  task->ticket = ticket;
  task->done = done_;
  task->done_value = tasks_ + 1;
  task->where = where_;
  task->stream = this;
  task->always = kind == TaskKind::gate || kind == TaskKind::gate_end;
  if (kind == TaskKind::user || kind == TaskKind::gate_end) scope_->begin(ticket);
  const CUresult posted = driver().cuLaunchHostFunc(stream_, post_task, task.get());
  if (posted != CUDA_SUCCESS) {
    scope_->finish(ticket, nullptr);
    check(posted, "launch of a task", where_);
  }
  (void)task.release();  // it deletes itself
  ++tasks_;
  CUstreamBatchMemOpParams step = {};
  step.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  step.waitValue.address = device_address(done_->word);
  step.waitValue.value = tasks_;
  step.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  check(driver().cuStreamBatchMemOp(stream_, 1, &step, 0), "launch of a task", where_);
}

void CudaStream::launch(HostTask task) {
  device::check(Work(task), where_);
  std::lock_guard lock(mutex_);
  if (const auto capture = capture_locked())
    capture->add_task(stream_, std::move(task), where_);
  else
    add_task_locked(std::move(task), TaskKind::user);
}

Status CudaStream::run(FunctionRef<Status()> task) {
  enum class Stage { waiting, running, ended, cancelled };
  // Shared: when the context is lost, the driver says so while the task may still be running.
  struct Call {
    std::atomic<Stage> stage = Stage::waiting;
    Status status;
    std::exception_ptr exception;
  };
  const auto call = std::make_shared<Call>();
  std::shared_ptr<FailureScope> scope;
  Ticket ticket = 0;
  CUevent end = nullptr;
  {
    std::lock_guard lock(mutex_);
    refuse_in_capture_locked("run");
    check(driver().cuEventCreate(&end, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC), "run", where_);
    try {
      // Its failure is its caller's alone.
      add_task_locked(
          [call, task] {
            Stage expected = Stage::waiting;
            if (!call->stage.compare_exchange_strong(expected, Stage::running)) return Status::success();
            try {
              call->status = task();
            } catch (...) {
              call->exception = std::current_exception();
            }
            call->stage = Stage::ended;
            call->stage.notify_all();
            return Status::success();
          },
          TaskKind::helper);
      check(driver().cuEventRecord(end, stream_), "run", where_);
    } catch (...) {
      (void)driver().cuEventDestroy(end);
      throw;
    }
    scope = scope_;
    ticket = tickets_;
  }
  const CUresult waited = driver().cuEventSynchronize(end);
  (void)driver().cuEventDestroy(end);
  Stage stage = Stage::waiting;
  if (waited != CUDA_SUCCESS && !call->stage.compare_exchange_strong(stage, Stage::cancelled)) {
    while ((stage = call->stage) == Stage::running) call->stage.wait(Stage::running);
  }
  check(waited, "run", where_);
  if (call->exception != nullptr) std::rethrow_exception(call->exception);
  if (call->stage == Stage::ended) return call->status;
  const FailurePtr failure = scope->before(ticket);
  return failure == nullptr ? Status{.code = ErrorCode::internal} : failure->status;
}

void CudaStream::copy(void* destination, const void* source, std::size_t bytes) {
  device::check(Work(CopyWork{destination, source, bytes}), where_);
  if (bytes == 0) return;
  std::lock_guard lock(mutex_);
  move_locked({.destination = destination, .source = source, .bytes = bytes});
}

void CudaStream::fill(void* destination, std::uint8_t value, std::size_t bytes) {
  device::check(Work(FillWork{destination, bytes, value}), where_);
  if (bytes == 0) return;
  std::lock_guard lock(mutex_);
  move_locked({.destination = destination, .bytes = bytes, .value = value});
}

void CudaStream::host_task_locked(HostTask task) {
  if (const auto capture = capture_locked())
    capture->add_task(stream_, std::move(task), where_);
  else
    add_task_locked(std::move(task), TaskKind::helper);
}

void CudaStream::move_locked(const Move& move) {
  const bool to_device = is_reachable(move.destination);
  const bool from_device = move.source == nullptr ? to_device : is_reachable(move.source);
  if (to_device && from_device) return device_move_locked(move);
  if (!to_device && !from_device) {
    return host_task_locked([move] {
      if (move.source != nullptr)
        std::memmove(move.destination, move.source, move.bytes);
      else
        std::memset(move.destination, move.value, move.bytes);
      return Status::success();
    });
  }
  // CUDA would read pageable memory at the call, and not in the stream's order: it goes through a buffer.
  const std::shared_ptr<std::byte> staging = make_staging();
  if (const auto capture = capture_locked()) capture->keep(staging);
  for (std::size_t at = 0; at < move.bytes; at += kStagingBytes) {
    const std::size_t part = std::min(kStagingBytes, move.bytes - at);
    std::byte* to = static_cast<std::byte*>(move.destination) + at;
    const std::byte* from = static_cast<const std::byte*>(move.source) + at;
    if (to_device) {
      host_task_locked([staging, from, part] {
        std::memcpy(staging.get(), from, part);
        return Status::success();
      });
      device_move_locked({.destination = to, .source = staging.get(), .bytes = part});
    } else {
      device_move_locked({.destination = staging.get(), .source = from, .bytes = part});
      host_task_locked([staging, to, part] {
        std::memcpy(to, staging.get(), part);
        return Status::success();
      });
    }
  }
  // The buffer goes back when the last copy has read it.
  if (to_device && capture_locked() == nullptr) host_task_locked([staging] { return Status::success(); });
}

void CudaStream::device_move_locked(const Move& move) {
  if (const auto capture = capture_locked()) {
    const Ticket ticket = capture->next_ticket();
    capture->check(enqueue_guarded_move(stream_, move, device_address(capture->scope()->word()), ticket),
                   "move");
    return;
  }
  const Ticket ticket = ++tickets_;
  const bool guarded = !is_captured_elsewhere_locked() && scope_->may_skip(ticket);
  check(guarded ? enqueue_guarded_move(stream_, move, device_address(scope_->word()), ticket)
                : enqueue_move(stream_, move),
        move.source != nullptr ? "copy" : "fill", where_);
}

void CudaStream::begin_capture() {
  std::lock_guard lock(mutex_);
  refuse_in_capture_locked("begin_capture");
  auto capture = std::make_shared<Capture>(context_, stream_, where_);
  check(driver().cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED), "begin_capture", where_);
  capture_ = std::move(capture);
}

std::shared_ptr<CudaGraph> CudaStream::end_capture() {
  std::lock_guard lock(mutex_);
  const auto capture = capture_locked();
  if (capture == nullptr)
    refuse("end_capture", "end_capture on a stream that is not being captured", "call begin_capture() first",
           where_);
  if (capture->origin() != stream_) {
    capture->break_off("end_capture on a stream that joined it");
    refuse("end_capture", "end_capture on a stream that joined the capture through an event",
           "end it on the stream that began it; it is broken now", where_);
  }
  capture_ = nullptr;
  return capture->finish();
}

bool CudaStream::is_capturing() {
  std::lock_guard lock(mutex_);
  return capture_locked() != nullptr || is_captured_elsewhere_locked();
}

void CudaStream::launch(const std::shared_ptr<CudaGraph>& graph) {
  // A part has one set of tasks, whichever graph it runs in.
  const auto launching = graph->lock_with_parts();
  std::lock_guard lock(mutex_);
  if (const auto capture = capture_locked()) {
    capture->add_graph(stream_, graph);
    return;
  }
  const auto all = graph->with_parts();
  // Launches that look at the graphs' scopes are in order; CUDA itself keeps those of one graph apart.
  for (const CudaGraph* each : all)
    check(driver().cuStreamWaitEvent(stream_, each->last_gated(), CU_EVENT_WAIT_DEFAULT), "launch of a graph",
          where_);
  const bool gated = graph->has_tasks() || scope_->may_skip(tickets_ + 1);
  if (!gated) {
    check(driver().cuGraphLaunch(graph->executable(), stream_), "launch of a graph", where_);
    ++tickets_;
    return;
  }
  add_task_locked(
      [graph, scope = scope_, ticket = tickets_ + 1] {
        graph->restart(scope->before(ticket));
        return Status::success();
      },
      TaskKind::gate);
  check(driver().cuGraphLaunch(graph->executable(), stream_), "launch of a graph", where_);
  add_task_locked(
      [graph]() -> Status {
        const FailurePtr failure = graph->failure();
        graph->restart(nullptr);
        if (failure != nullptr) throw Error(failure->error);
        return Status::success();
      },
      TaskKind::gate_end);
  for (const CudaGraph* each : all)
    check(driver().cuEventRecord(each->last_gated(), stream_), "launch of a graph", where_);
}

void CudaStream::record(CudaEvent& event) {
  std::lock_guard lock(mutex_);
  std::lock_guard recording(event.recording());
  if (const auto capture = capture_locked()) {
    capture->require_sound();
    capture->check(driver().cuEventRecord(event.handle(), stream_), "record");
    event.set(capture);
    return;
  }
  check(driver().cuEventRecord(event.handle(), stream_), "record", where_);
  event.set(CudaEvent::Recorded{scope_, tickets_});
}

void CudaStream::wait(CudaEvent& event) {
  std::lock_guard lock(mutex_);
  std::lock_guard recording(event.recording());
  const auto own = capture_locked();
  if (own != nullptr) own->require_sound();
  const CudaEvent::Latest latest = event.latest();
  if (std::holds_alternative<std::monostate>(latest)) return;
  if (const auto* captured = std::get_if<std::shared_ptr<Capture>>(&latest)) {
    const auto refuse_wait = [&](const char* reason) {
      if (own != nullptr) own->break_off(reason);
      (*captured)->break_off(reason);
      refuse("wait", fmt::format("wait for an event whose last record was captured: {}", reason),
             "record it outside of a capture first, or wait for it in the capture it belongs to", where_);
    };
    if ((*captured)->ended()) refuse_wait("a wait for an event of a capture that has ended");
    if (own != nullptr && own != *captured) refuse_wait("a wait for an event of another capture");
    (*captured)->check(driver().cuStreamWaitEvent(stream_, event.handle(), CU_EVENT_WAIT_DEFAULT), "wait");
    capture_ = *captured;
    return;
  }
  if (own != nullptr) {
    own->break_off("a wait for an event from outside");
    refuse("wait", "wait in a capture for an event that was recorded outside of it",
           "wait for it before the capture begins; the capture is broken now", where_);
  }
  const auto& record = std::get<CudaEvent::Recorded>(latest);
  check(driver().cuStreamWaitEvent(stream_, event.handle(), CU_EVENT_WAIT_DEFAULT), "wait", where_);
  record.scope->add_dependent(record.ticket, scope_, ++tickets_);
}

}  // namespace tugline::device::cuda

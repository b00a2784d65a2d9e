// SPDX-License-Identifier: Apache-2.0
#include "device/host/stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tugline::device::host {
namespace {

// Up to here a copy on an idle stream is done by the caller: it takes less than handing it to a thread.
constexpr std::size_t kCopyHereBytes = 16 << 10;

std::size_t bytes_to_move(const Work& work) noexcept {
  if (const auto* copy = std::get_if<CopyWork>(&work)) return copy->bytes;
  if (const auto* fill = std::get_if<FillWork>(&work)) return fill->bytes;
  return std::numeric_limits<std::size_t>::max();
}

ErrorContext context_of(const char* operation, const std::string& where) {
  return {.operation = operation, .device = where};
}

}  // namespace

HostStream::HostStream(std::string where) : where_(std::move(where)) {}

HostStream::~HostStream() {
  Lock lock(mutex_);
  if (capturing()) {
    capture_->break_off("destruction of a stream that took part in it (" + where_ + ")");
    capture_.reset();
    state_.fetch_and(~kCapturing, std::memory_order_relaxed);
  }
  wait_until_finished(lock, enqueued_);
  stopping_ = true;
  work_.notify_one();
  lock.unlock();
  if (thread_.joinable()) thread_.join();
}

Status HostStream::run_in_turn(FunctionRef<Status()> task) {
  RunCall call{task, Status::success(), nullptr};
  {
    Lock lock(mutex_);
    refuse_when_capturing("run");
    refuse_own_task("run");
    if (failure_ != nullptr) return failure_->status;
    if (queue_.empty() && waiters_ == 0 && (state_.fetch_or(kBusy, std::memory_order_acquire) & kBusy) == 0) {
      lock.unlock();
      return run_here(task);
    }
    wait_until_finished(lock, push(&call));
  }
  if (call.exception != nullptr) std::rethrow_exception(call.exception);
  return call.status;
}

void HostStream::launch(Work item) {
  check(item, where_);
  Lock lock(mutex_);
  if (capturing()) return capture_->add(lane_, std::move(item));
  std::uint32_t expected = 0;
  if (bytes_to_move(item) <= kCopyHereBytes &&
      state_.compare_exchange_strong(expected, kBusy, std::memory_order_acquire, std::memory_order_relaxed)) {
    lock.unlock();
    Busy busy{*this};
    (void)execute(item, where_);  // moving checked bytes returns success only
    return;
  }
  push(std::move(item));
}

void HostStream::launch(const std::shared_ptr<HostGraph>& graph) {
  {
    Lock lock(mutex_);
    if (capturing()) return capture_->add_graph(lane_, graph->body());
    start_locked();
  }
  // The graph's lock first: two streams that launch one graph get their turns in one order.
  auto finished = std::make_shared<EventRecord>();
  HostGraph::Turn turn = graph->next_launch(finished);
  Lock lock(mutex_);
  try {
    if (turn.previous != nullptr && !turn.previous->done()) {
      push(WaitItem{std::move(turn.previous), OnFailure::ignore});
    }
    push(graph);
    push(finished);
  } catch (...) {
    finished->complete(nullptr);  // the next launch must not wait for one that was never enqueued
    throw;
  }
}

void HostStream::record(HostEvent& event) {
  Lock lock(mutex_);
  if (capturing()) {
    CapturedPlace place = capture_->record(lane_);
    place.capture = capture_;
    event.set(std::move(place));
    return;
  }
  auto record = std::make_shared<EventRecord>();
  // Nothing before it: done on the spot, and the stream needs no thread for it.
  const std::uint32_t state = state_.load(std::memory_order_acquire);
  if ((state & (kBusy | kQueued)) == 0) {
    record->complete(failure_);
  } else {
    push(record);
  }
  event.set(std::move(record));
}

void HostStream::wait(const HostEvent& event) {
  HostEvent::Latest latest = event.latest();
  Lock lock(mutex_);
  const bool in_capture = capturing();
  if (auto* place = std::get_if<CapturedPlace>(&latest)) {
    if (in_capture && capture_ != place->capture) {
      const std::string reason = "wait of a stream in one capture for an event of another capture";
      capture_->break_off(reason);
      place->capture->break_off(reason);
      throw Error(ErrorCode::invalid_usage, reason, "end one capture before its events are used in another",
                  context_of("wait", where_));
    }
    if (!in_capture) {
      if (place->capture->ended()) {
        throw Error(
            ErrorCode::invalid_usage, "wait for an event whose last record was in a capture that has ended",
            "record the event again outside the capture before waiting for it", context_of("wait", where_));
      }
      lane_ = place->capture->add_lane();
      capture_ = place->capture;
      state_.fetch_or(kCapturing, std::memory_order_relaxed);
    }
    return capture_->await(lane_, *place);
  }
  auto* record = std::get_if<std::shared_ptr<EventRecord>>(&latest);
  if (in_capture && record != nullptr) {
    const std::string reason = "wait inside a capture for an event that was recorded outside";
    capture_->break_off(reason);
    throw Error(ErrorCode::invalid_usage, reason,
                "record the event inside the capture, or wait before it begins", context_of("wait", where_));
  }
  if (record == nullptr || ((*record)->done() && (*record)->failure() == nullptr)) return;
  push(WaitItem{std::move(*record), OnFailure::inherit});
}

void HostStream::sync() {
  // Acquire: pairs with leave(), so that the caller sees what the stream's work wrote.
  if (state_.load(std::memory_order_acquire) == 0) return;
  Lock lock(mutex_);
  refuse_when_capturing("sync");
  refuse_own_task("sync");
  refuse_orphaned();
  wait_until_finished(lock, enqueued_);
  if (FailurePtr failure = take_failure()) {
    lock.unlock();
    throw Error(failure->error);
  }
}

bool HostStream::is_done() {
  const std::uint32_t state = state_.load(std::memory_order_acquire);
  if ((state & kCapturing) == 0) return (state & (kBusy | kQueued)) == 0;
  Lock lock(mutex_);
  refuse_when_capturing("is_done");
  return (state_.load(std::memory_order_acquire) & (kBusy | kQueued)) == 0;
}

Status HostStream::status() {
  if ((state_.load(std::memory_order_relaxed) & kFailed) == 0) return Status::success();
  Lock lock(mutex_);
  return failure_ != nullptr ? failure_->status : Status::success();
}

void HostStream::begin_capture() {
  Lock lock(mutex_);
  if (capturing()) {
    capture_->break_off("begin_capture on a stream that already captures (" + where_ + ")");
    throw Error(ErrorCode::invalid_usage, "begin_capture on a stream that already captures",
                "end the capture before the next one begins", context_of("begin_capture", where_));
  }
  capture_ = std::make_shared<Capture>(where_);
  lane_ = 0;
  state_.fetch_or(kCapturing, std::memory_order_relaxed);
}

std::shared_ptr<HostGraph> HostStream::end_capture() {
  Lock lock(mutex_);
  if (!capturing()) {
    throw Error(ErrorCode::invalid_usage, "end_capture on a stream that does not capture",
                "call begin_capture on the same stream first", context_of("end_capture", where_));
  }
  if (lane_ != 0) {
    capture_->break_off("end_capture on a stream that only joined it (" + where_ + ")");
    throw Error(ErrorCode::invalid_usage,
                "end_capture on a stream that joined the capture by waiting for its event",
                "end the capture on the stream where it began", context_of("end_capture", where_));
  }
  std::shared_ptr<Capture> capture = std::exchange(capture_, nullptr);
  state_.fetch_and(~kCapturing, std::memory_order_relaxed);
  lock.unlock();
  return std::make_shared<HostGraph>(capture->finish(), where_ + " graph");
}

bool HostStream::is_capturing() {
  if ((state_.load(std::memory_order_relaxed) & kCapturing) == 0) return false;
  Lock lock(mutex_);
  return capturing();
}

// A stream that joined a capture is not told when it ends; it notices here, at its next call.
bool HostStream::capturing() {
  if (capture_ == nullptr) return false;
  if (!capture_->ended()) return true;
  capture_.reset();
  state_.fetch_and(~kCapturing, std::memory_order_relaxed);
  return false;
}

void HostStream::refuse_when_capturing(const char* operation) {
  if (!capturing()) return;
  capture_->break_off(fmt::format("{} on {}", operation, where_));
  throw Error(ErrorCode::invalid_usage,
              fmt::format("{} on a stream that captures; the capture is broken", operation),
              fmt::format("call {} before begin_capture or after end_capture", operation),
              context_of(operation, where_));
}

void HostStream::refuse_own_task(const char* operation) const {
  if (!is_running_here()) return;
  throw Error(ErrorCode::invalid_usage,
              fmt::format("{} from a task of the same stream would wait for itself", operation),
              "enqueue more work instead, or call it from outside the stream's tasks",
              context_of(operation, where_));
}

}  // namespace tugline::device::host

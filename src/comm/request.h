// SPDX-License-Identifier: Apache-2.0
// Operations that go on beside their caller: a communicator's stream for them, and what a Request holds.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "tugline/device.h"

namespace tugline::comm {

class CommunicatorState;

/// One operation. Shared by the Request and the task; the Request alone keeps the communicator, so that the
/// last reference is never dropped on the communicator's own stream.
class RequestState {
 public:
  struct Progress {
    std::atomic<bool> done{false};  ///< release after `error`; waited on
    std::exception_ptr error;
  };
  RequestState(std::shared_ptr<CommunicatorState> communicator, std::shared_ptr<Progress> progress) noexcept
      : communicator_(std::move(communicator)), progress_(std::move(progress)) {}

  bool is_done() const noexcept { return progress_->done.load(std::memory_order_acquire); }
  void wait() const noexcept { progress_->done.wait(false, std::memory_order_acquire); }
  /// Once it is done: its error, which is the caller's alone from then on.
  std::exception_ptr take_error() noexcept { return std::exchange(progress_->error, nullptr); }

 private:
  std::shared_ptr<CommunicatorState> communicator_;
  std::shared_ptr<Progress> progress_;
};

/// The stream on which a communicator's requests run in order; made with the first one.
class RequestStream {
 public:
  explicit RequestStream(Device& device) noexcept : device_(device) {}

  /// Enqueues `operation`, whose exceptions become the request's error and leave the stream usable.
  std::shared_ptr<RequestState::Progress> launch(std::function<void()> operation);
  /// Blocks until all requests so far are done.
  void drain() {
    if (used_.load(std::memory_order_relaxed)) wait_until_idle();
  }
  /// Lets `stream` wait for all requests so far, unless it captures.
  void hold_back(StreamRef stream);

 private:
  void wait_until_idle();
  bool is_idle() const { return !stream_ || stream_->is_done(); }

  Device& device_;
  std::atomic<bool> used_{false};  ///< spares calls of communicators without requests the lock
  std::mutex mutex_;
  std::optional<Stream> stream_;
};

}  // namespace tugline::comm

// SPDX-License-Identifier: Apache-2.0
#include "comm/request.h"

#include <utility>

#include "tugline/communicator.h"
#include "tugline/error.h"

namespace tugline::comm {

std::shared_ptr<RequestState::Progress> RequestStream::launch(std::function<void()> operation) {
  auto progress = std::make_shared<RequestState::Progress>();
  std::lock_guard lock(mutex_);
  if (!stream_) stream_.emplace(device_.stream());
  used_.store(true, std::memory_order_relaxed);
  stream_->launch([progress, operation = std::move(operation)]() -> Status {
    try {
      operation();
    } catch (...) {
      progress->error = std::current_exception();
    }
    progress->done.store(true, std::memory_order_release);
    progress->done.notify_all();
    return {};
  });
  return progress;
}

void RequestStream::wait_until_idle() {
  std::lock_guard lock(mutex_);
  if (!is_idle()) stream_->sync();
}

void RequestStream::hold_back(StreamRef stream) {
  if (!used_.load(std::memory_order_relaxed)) return;
  std::lock_guard lock(mutex_);
  if (is_idle() || stream.device().is_capturing(stream.get())) return;
  const Event event(device_);
  stream_->record(event);
  stream.wait(event);
}

}  // namespace tugline::comm

namespace tugline {

Request::Request() noexcept = default;
Request::Request(Request&&) noexcept = default;

Request::~Request() {
  if (state_) state_->wait();
}

Request& Request::operator=(Request&& other) noexcept {
  if (state_ && this != &other) state_->wait();
  state_ = std::move(other.state_);
  return *this;
}

bool Request::is_done() const noexcept {
  return !state_ || state_->is_done();
}

void Request::wait() {
  if (!state_) return;
  const auto state = std::exchange(state_, nullptr);
  state->wait();
  if (auto error = state->take_error()) std::rethrow_exception(std::move(error));
}

void Request::begin(std::shared_ptr<comm::RequestState> state) {
  state_ = std::move(state);
}

}  // namespace tugline

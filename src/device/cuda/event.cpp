// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/event.h"

#include <chrono>
#include <cmath>
#include <utility>

namespace tugline::device::cuda {

CudaEvent::CudaEvent(int device, std::string where) : device_(device), where_(std::move(where)) {
  check(driver().cuEventCreate(&event_, CU_EVENT_DEFAULT), "creation of an event", where_);
}

CudaEvent::~CudaEvent() {
  (void)driver().cuEventDestroy(event_);
}

CudaEvent::Latest CudaEvent::latest() const {
  std::lock_guard lock(mutex_);
  return latest_;
}

void CudaEvent::set(Latest latest) {
  std::lock_guard lock(mutex_);
  latest_ = std::move(latest);
}

CudaEvent::Recorded CudaEvent::recorded(const char* operation) const {
  const Latest latest = this->latest();
  if (const auto* capture = std::get_if<std::shared_ptr<Capture>>(&latest)) {
    const std::string reason = std::string(operation) + " of an event that was recorded in it";
    (*capture)->break_off(reason);
    throw Error(ErrorCode::invalid_usage,
                std::string(operation) + " of an event whose last record was captured",
                "record it outside of a capture first", {.operation = operation, .device = where_});
  }
  if (const auto* record = std::get_if<Recorded>(&latest)) return *record;
  return {};
}

bool CudaEvent::is_done() const {
  if (recorded("is_done").scope == nullptr) return true;
  const CUresult result = driver().cuEventQuery(event_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  check(result, "is_done", where_);
  return true;
}

void CudaEvent::sync() const {
  const Recorded record = recorded("sync");
  if (record.scope == nullptr) return;
  check(driver().cuEventSynchronize(event_), "sync", where_);
  if (FailurePtr failure = record.scope->up_to(record.ticket)) throw Error(failure->error);
}

std::chrono::nanoseconds CudaEvent::since(const CudaEvent& start) const {
  const auto refuse = [&](const char* what) {
    throw Error(ErrorCode::invalid_usage, what, "record both events and wait until they are done",
                {.operation = "since", .device = where_});
  };
  if (recorded("since").scope == nullptr) refuse("the end was never recorded");
  if (start.recorded("since").scope == nullptr) refuse("the start was never recorded");
  if (!is_done()) refuse("the end is not done yet");
  if (!start.is_done()) refuse("the start is not done yet");
  float milliseconds = 0;
  check(driver().cuEventElapsedTime(&milliseconds, start.event_, event_), "since", where_);
  return std::chrono::nanoseconds(std::llround(static_cast<double>(milliseconds) * 1e6));
}

}  // namespace tugline::device::cuda

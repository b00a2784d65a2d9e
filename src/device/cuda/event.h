// SPDX-License-Identifier: Apache-2.0
// Events: CUDA's, and the failures of the work before their latest record.
#pragma once

#include <memory>
#include <mutex>
#include <variant>

#include "device/cuda/graph.h"

namespace tugline::device::cuda {

/// Thread-safe.
class CudaEvent {
 public:
  struct Recorded {
    std::shared_ptr<FailureScope> scope;
    Ticket ticket = 0;
  };
  using Latest = std::variant<std::monostate, Recorded, std::shared_ptr<Capture>>;

  /// Needs `context` to be current, as all of this class's functions do.
  CudaEvent(int device, std::string where);
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;

  int device() const noexcept { return device_; }
  CUevent handle() const noexcept { return event_; }
  Latest latest() const;
  /// Held around CUDA's record and set(), so that both name the same one.
  std::mutex& recording() noexcept { return recording_; }
  void set(Latest latest);

  bool is_done() const;
  void sync() const;
  std::chrono::nanoseconds since(const CudaEvent& start) const;

 private:
  Recorded recorded(const char* operation) const;

  const int device_;
  const std::string where_;
  CUevent event_ = nullptr;
  std::mutex recording_;
  mutable std::mutex mutex_;
  Latest latest_;
};

}  // namespace tugline::device::cuda

// SPDX-License-Identifier: Apache-2.0
// A CUDA stream with what the contract of tugline/device.h adds to it: tasks of the host, failures that skip
// what is behind them, captures that say what broke them.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/cuda/event.h"
#include "device/cuda/move.h"
#include "tugline/function_ref.h"

namespace tugline::device::cuda {

/// Thread-safe. Needs its device's context to be current in every call.
class CudaStream {
 public:
  /// Makes a stream that does not wait for the legacy default stream.
  CudaStream(int device, CUcontext context, std::string where);
  /// Stands for a stream of the caller, which stays the caller's.
  CudaStream(int device, CUcontext context, std::string where, CUstream stream);
  /// Waits for its work. Breaks the capture that it takes part in.
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;

  int device() const noexcept { return device_; }
  CUstream handle() const noexcept { return stream_; }

  void sync();
  bool is_done();
  Status status() const;
  void launch(HostTask task);
  Status run(FunctionRef<Status()> task);
  void copy(void* destination, const void* source, std::size_t bytes);
  void fill(void* destination, std::uint8_t value, std::size_t bytes);
  void begin_capture();
  std::shared_ptr<CudaGraph> end_capture();
  bool is_capturing();
  void launch(const std::shared_ptr<CudaGraph>& graph);
  void record(CudaEvent& event);
  void wait(CudaEvent& event);

 private:
  /// The capture that this stream takes part in, null if none. Needs the lock.
  std::shared_ptr<Capture> capture_locked();
  /// True while the caller captures its own stream, of which this class knows nothing else.
  bool is_captured_elsewhere_locked();
  /// Breaks the capture, if there is one, and throws.
  void refuse_in_capture_locked(const char* operation);
  /// user: may fail, skipped on a failed stream. helper: cannot fail, skipped. gate, gate_end: around a graph
  /// that looks at its own scope, run always; the end passes on how the graph failed.
  enum class TaskKind { user, helper, gate, gate_end };
  void add_task_locked(HostTask task, TaskKind kind);
  /// A task that cannot fail, captured if the stream is.
  void host_task_locked(HostTask task);
  void move_locked(const Move& move);
  /// Of memory that the device can reach.
  void device_move_locked(const Move& move);

  const int device_;
  const CUcontext context_;
  const std::string where_;
  CUstream stream_ = nullptr;
  const bool owned_;
  mutable std::mutex mutex_;
  std::shared_ptr<FailureScope> scope_;
  /// Scopes that ended, and the tickets up to which work may still look at them.
  std::vector<std::pair<Ticket, std::shared_ptr<FailureScope>>> retired_;
  Ticket tickets_ = 0;
  std::shared_ptr<Cell> done_;
  std::uint32_t tasks_ = 0;
  std::shared_ptr<Capture> capture_;
};

}  // namespace tugline::device::cuda

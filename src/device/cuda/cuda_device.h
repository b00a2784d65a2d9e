// SPDX-License-Identifier: Apache-2.0
// A GPU as a device: the verbs of Device over the CUDA driver.
#pragma once

#include "device/cuda/driver.h"
#include "tugline/device.h"

namespace tugline::device::cuda {

/// One GPU of this process, in its primary context, so that the CUDA runtime, PyTorch and others see the same
/// memory and streams. Thread-safe.
class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index);
  ~CudaDevice() override;

  const DeviceInfo& info() const noexcept override { return info_; }
  StreamRef default_stream() override { return {*this, default_stream_}; }
  CUdevice ordinal() const noexcept { return device_; }
  CUcontext context() const noexcept { return context_; }

  /// Whole segments of the granularity; every device of this process that has a path to it may reach it.
  void* allocate(std::size_t bytes) override;
  void deallocate(void* address, std::size_t bytes) noexcept override;
  /// `descriptor`: what cuMemExportToShareableHandle gives. `bytes`: all of the segment.
  void* import(int descriptor, std::size_t bytes) override;
  void unimport(void* address, std::size_t bytes) noexcept override;
  std::uint64_t free_bytes() const override;

  std::uintptr_t create_stream() override;
  void destroy_stream(std::uintptr_t stream) noexcept override;
  std::uintptr_t adopt_stream(std::uintptr_t native) override;
  std::uintptr_t native_stream(std::uintptr_t stream) override;
  void sync_stream(std::uintptr_t stream) override;
  bool is_stream_done(std::uintptr_t stream) override;
  Status stream_status(std::uintptr_t stream) override;
  void launch(std::uintptr_t stream, HostTask task) override;
  Status run(std::uintptr_t stream, FunctionRef<Status()> task) override;
  void copy(std::uintptr_t stream, void* destination, const void* source, std::size_t bytes) override;
  void fill(std::uintptr_t stream, void* destination, std::uint8_t value, std::size_t bytes) override;
  void begin_capture(std::uintptr_t stream) override;
  std::uintptr_t end_capture(std::uintptr_t stream) override;
  bool is_capturing(std::uintptr_t stream) override;
  void launch_graph(std::uintptr_t graph, std::uintptr_t stream) override;
  void destroy_graph(std::uintptr_t graph) noexcept override;
  std::uintptr_t create_event() override;
  void destroy_event(std::uintptr_t event) noexcept override;
  void record_event(std::uintptr_t event, std::uintptr_t stream) override;
  void wait_event(std::uintptr_t event, std::uintptr_t stream) override;
  bool is_event_done(std::uintptr_t event) override;
  void sync_event(std::uintptr_t event) override;
  std::chrono::nanoseconds event_interval(std::uintptr_t start, std::uintptr_t end) override;

 private:
  std::string label() const;
  CUmemAllocationProp segment_properties() const;
  std::size_t segment_bytes(std::size_t bytes) const noexcept {
    return (bytes + granularity_ - 1) / granularity_ * granularity_;
  }
  void* map(CUmemGenericAllocationHandle handle, std::size_t bytes, const char* operation);

  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  DeviceInfo info_;
  std::size_t granularity_ = 0;
  bool rdma_ = false;  ///< other devices of the bus may read and write its memory
  std::uintptr_t default_stream_ = 0;
};

}  // namespace tugline::device::cuda

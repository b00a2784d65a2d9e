// SPDX-License-Identifier: Apache-2.0
// The host as a device: the verbs of Device over HostStream, HostEvent and HostGraph.
#pragma once

#include "tugline/device.h"

namespace tugline::device::host {

/// One of any number of host devices in a process: they share memory and cores, and differ by their default
/// stream. Thread-safe.
class HostDevice final : public Device {
 public:
  explicit HostDevice(int index);
  ~HostDevice() override;

  const DeviceInfo& info() const noexcept override { return info_; }
  StreamRef default_stream() override { return {*this, default_stream_}; }

  void* allocate(std::size_t bytes) override;
  void deallocate(void* address, std::size_t bytes) noexcept override;
  void* import(int descriptor, std::size_t bytes) override;
  void unimport(void* address, std::size_t bytes) noexcept override;
  std::uint64_t free_bytes() const override;

  std::uintptr_t create_stream() override;
  void destroy_stream(std::uintptr_t stream) noexcept override;
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
  DeviceInfo info_;
  std::uintptr_t default_stream_ = 0;
};

}  // namespace tugline::device::host

// SPDX-License-Identifier: Apache-2.0
// Devices, streams, events and graphs. `Device` is the small set of verbs that a backend implements; owners
// (`Stream`, `Event`, `Graph`) and views (`StreamRef`, `EventRef`) are what users hold. The host backend
// behaves as CUDA does: work is ordered within a stream, errors of enqueued work are asynchronous, capture
// records instead of running.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "tugline/error.h"
#include "tugline/export.h"
#include "tugline/function_ref.h"

namespace tugline {

class Device;
class Stream;

enum class DeviceKind : std::uint8_t { host, cuda };
constexpr std::string_view name_of(DeviceKind kind) noexcept {
  return kind == DeviceKind::host ? "host" : kind == DeviceKind::cuda ? "cuda" : "?";
}

struct DeviceInfo {
  DeviceKind kind = DeviceKind::host;
  int index = 0;                   ///< among the devices of this kind in this process
  std::string uuid;                ///< stable across processes of one host
  std::string name;                ///< "Intel(R) Xeon(R) ..., cores 0-1"
  std::uint64_t memory_bytes = 0;  ///< total, as a process may use it (cgroup limit included)
};

/// Work that runs in stream order on the host. A status other than ok becomes the stream's asynchronous
/// error.
using HostTask = std::function<Status()>;

/// View of an event; does not own it. Trivially copyable.
class TUGLINE_EXPORT EventRef {
 public:
  EventRef(Device& device, std::uintptr_t handle) noexcept : device_(&device), handle_(handle) {}
  /// True once the work recorded before it is done; also true if it was never recorded. Throws invalid_usage
  /// (and breaks the capture) if the last record was captured.
  bool is_done() const;
  /// Blocks the calling thread until is_done(). Throws the stream's asynchronous error if the work failed,
  /// every time, until the event is recorded again. Throws invalid_usage as is_done() does.
  void sync() const;
  std::uintptr_t get() const noexcept { return handle_; }
  Device& device() const noexcept { return *device_; }

 private:
  Device* device_;
  std::uintptr_t handle_;
};

/// View of a stream; does not own it. Cannot be made from 0 or nullptr: name the device's default stream
/// instead.
class TUGLINE_EXPORT StreamRef {
 public:
  StreamRef(Device& device, std::uintptr_t handle) noexcept : device_(&device), handle_(handle) {}
  StreamRef(std::nullptr_t) = delete;
  StreamRef(int) = delete;
  /// A stream that the caller has from CUDA: a cudaStream_t or CUstream of this device, as a number. It stays
  /// the caller's: it is to live longer than the work enqueued here, and is never destroyed. Throws
  /// Error{invalid_argument} for 0 (name the device's default stream instead), Error{unsupported} on a device
  /// whose streams are no others' (host). Thread-safe. While the caller captures it, copies and fills of
  /// memory that the device reaches become nodes of the caller's graph; tasks of the host are refused.
  static StreamRef from_native_handle(Device& device, std::uintptr_t native);

  /// Blocks until all enqueued work is done; throws its asynchronous error, if any, once, after which the
  /// stream is usable again. Work enqueued behind a failure and before that sync is skipped. Not capturable.
  void sync() const;
  /// True when no work is left. Not capturable.
  bool is_done() const;
  /// Later work of this stream waits for the event's most recent record (none: no effect; recording it again
  /// later changes nothing). If the recorded work failed, so does this stream. Does not block the caller.
  /// Capturable: a stream that waits for an event recorded in a capture joins that capture.
  void wait(EventRef event) const;
  /// Records the event behind the work enqueued so far. Capturable.
  void record(EventRef event) const;
  /// Runs `task` on the host in stream order. Does not block the caller. Capturable.
  void launch(HostTask task) const;
  /// Enqueues a copy of `bytes` bytes. Does not block the caller. Capturable.
  void copy(void* destination, const void* source, std::size_t bytes) const;
  /// Enqueues setting `bytes` bytes to `value`. Capturable.
  void fill(void* destination, std::uint8_t value, std::size_t bytes) const;
  /// Runs `task` in stream order, blocks until it is done and returns its status; see Device::run.
  Status run(FunctionRef<Status()> task) const;
  /// Asynchronous error so far, without blocking or clearing it.
  Status status() const;
  bool is_capturing() const;

  std::uintptr_t get() const noexcept { return handle_; }
  /// CUDA's own handle (a cudaStream_t or CUstream as a number), for the caller's kernels and libraries.
  /// Throws Error{unsupported} on a device that has none (host).
  std::uintptr_t native_handle() const;
  Device& device() const noexcept { return *device_; }
  friend bool operator==(const StreamRef&, const StreamRef&) = default;

 private:
  Device* device_;
  std::uintptr_t handle_;
};

/// Owner of an event.
class TUGLINE_EXPORT Event {
 public:
  explicit Event(Device& device);
  ~Event();
  Event(Event&& other) noexcept : device_(other.device_), handle_(std::exchange(other.handle_, 0)) {}
  Event& operator=(Event&& other) noexcept;
  operator EventRef() const noexcept { return {*device_, handle_}; }
  bool is_done() const { return EventRef(*this).is_done(); }
  void sync() const { EventRef(*this).sync(); }
  /// Time between two recorded, finished events.
  std::chrono::nanoseconds since(EventRef start) const;

 private:
  Device* device_;
  std::uintptr_t handle_;
};

/// A captured sequence of stream work that can be replayed. Launches of one graph run one after the other,
/// also on different streams, so a captured task never runs beside itself. Destroying it lets launches
/// finish.
class TUGLINE_EXPORT Graph {
 public:
  Graph(Device& device, std::uintptr_t handle) noexcept : device_(&device), handle_(handle) {}
  ~Graph();
  Graph(Graph&& other) noexcept : device_(other.device_), handle_(std::exchange(other.handle_, 0)) {}
  Graph& operator=(Graph&& other) noexcept;
  /// Enqueues the captured work once more. Does not block the caller.
  void launch(StreamRef stream) const;

 private:
  Device* device_;
  std::uintptr_t handle_;
};

/// Owner of a stream: waits for its work when destroyed.
class TUGLINE_EXPORT Stream {
 public:
  explicit Stream(Device& device);
  ~Stream();
  Stream(Stream&& other) noexcept : device_(other.device_), handle_(std::exchange(other.handle_, 0)) {}
  Stream& operator=(Stream&& other) noexcept;
  operator StreamRef() const noexcept { return {*device_, handle_}; }
  StreamRef ref() const noexcept { return {*device_, handle_}; }
  void sync() const { ref().sync(); }
  bool is_done() const { return ref().is_done(); }
  void wait(EventRef event) const { ref().wait(event); }
  void record(EventRef event) const { ref().record(event); }
  void launch(HostTask task) const { ref().launch(std::move(task)); }
  /// Starts recording instead of running. Throws invalid_usage if already capturing.
  void begin_capture() const;
  /// Ends recording and gives the graph. Throws invalid_usage if not capturing or if the capture was broken.
  Graph end_capture() const;

 private:
  Device* device_;
  std::uintptr_t handle_;
};

/// A backend's device. Implementations are thread-safe. Handles are opaque; 0 is none.
class TUGLINE_EXPORT Device {
 public:
  virtual ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual const DeviceInfo& info() const noexcept = 0;
  /// A new stream of this device.
  Stream stream() { return Stream(*this); }
  /// The device's own stream, used where the caller names none.
  virtual StreamRef default_stream() = 0;

  // Memory. Addresses are usable by work on this device. Throws out_of_memory with the bytes asked for and
  // free.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* address, std::size_t bytes) noexcept = 0;
  /// Maps shared memory (a sealed memfd on the host) into this process for work on this device.
  virtual void* import(int descriptor, std::size_t bytes) = 0;
  virtual void unimport(void* address, std::size_t bytes) noexcept = 0;
  virtual std::uint64_t free_bytes() const = 0;

  // Streams, events, graphs: the verbs behind the classes above.
  virtual std::uintptr_t create_stream() = 0;
  virtual void destroy_stream(std::uintptr_t stream) noexcept = 0;
  /// The handle that stands for a native stream, and the other way round; see StreamRef.
  virtual std::uintptr_t adopt_stream(std::uintptr_t native);
  virtual std::uintptr_t native_stream(std::uintptr_t stream);
  virtual void sync_stream(std::uintptr_t stream) = 0;
  virtual bool is_stream_done(std::uintptr_t stream) = 0;
  virtual Status stream_status(std::uintptr_t stream) = 0;
  virtual void launch(std::uintptr_t stream, HostTask task) = 0;
  /// Runs `task` in stream order and returns its status without making it the stream's error; on an idle host
  /// stream on the caller's thread. What the task throws reaches the caller. On a stream that has failed the
  /// task is skipped and the stream's status returned. Blocks. Not capturable (invalid_usage).
  virtual Status run(std::uintptr_t stream, FunctionRef<Status()> task) = 0;
  virtual void copy(std::uintptr_t stream, void* destination, const void* source, std::size_t bytes) = 0;
  virtual void fill(std::uintptr_t stream, void* destination, std::uint8_t value, std::size_t bytes) = 0;
  virtual void begin_capture(std::uintptr_t stream) = 0;
  virtual std::uintptr_t end_capture(std::uintptr_t stream) = 0;
  virtual bool is_capturing(std::uintptr_t stream) = 0;
  virtual void launch_graph(std::uintptr_t graph, std::uintptr_t stream) = 0;
  virtual void destroy_graph(std::uintptr_t graph) noexcept = 0;
  virtual std::uintptr_t create_event() = 0;
  virtual void destroy_event(std::uintptr_t event) noexcept = 0;
  virtual void record_event(std::uintptr_t event, std::uintptr_t stream) = 0;
  virtual void wait_event(std::uintptr_t event, std::uintptr_t stream) = 0;
  virtual bool is_event_done(std::uintptr_t event) = 0;
  virtual void sync_event(std::uintptr_t event) = 0;
  virtual std::chrono::nanoseconds event_interval(std::uintptr_t start, std::uintptr_t end) = 0;

 protected:
  Device() = default;
};

}  // namespace tugline

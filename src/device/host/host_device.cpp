// SPDX-License-Identifier: Apache-2.0
#include "device/host/host_device.h"

#include <fmt/format.h>

#include <atomic>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "device/handle_table.h"
#include "device/host/event.h"
#include "device/host/graph.h"
#include "device/host/identity.h"
#include "device/host/stream.h"
#include "device/refusals.h"

namespace tugline::device::host {
namespace {

struct StreamOfDevice {
  StreamOfDevice(int device_index, std::string where) : device(device_index), stream(std::move(where)) {}
  const int device;
  HostStream stream;
};

// One set of handles for all host devices, so that streams of one can wait for events of another. Never
// destroyed: streams of static lifetime may outlive any order of destruction.
struct Handles {
  HandleTable<StreamOfDevice> streams{"stream", 1};
  HandleTable<HostEvent> events{"event", 2};
  HandleTable<HostGraph> graphs{"graph", 3};
  std::atomic<int> next_stream = 0;
};
Handles& handles() {
  static Handles* all = new Handles;
  return *all;
}

HostStream& stream_of(std::uintptr_t handle, const DeviceInfo& info) {
  StreamOfDevice& found = handles().streams.get(handle);
  if (found.device != info.index)
    refuse_foreign("stream", fmt::format("host:{}", found.device), fmt::format("host:{}", info.index));
  return found.stream;
}

// Threads of the parent process cannot be waited for in a forked child: what has them stays as it is until
// the child ends.
template <class Object>
void abandon(std::shared_ptr<Object> object) noexcept {
  static std::mutex mutex;
  static auto* kept = new std::vector<std::shared_ptr<Object>>;
  std::lock_guard lock(mutex);
  kept->push_back(std::move(object));
}

// The last owner of a stream may be held by one of its own tasks, whose thread cannot wait for itself.
void destroy_elsewhere(std::shared_ptr<StreamOfDevice> stream) noexcept {
  auto* kept = new (std::nothrow) std::shared_ptr<StreamOfDevice>(stream);
  try {
    if (kept == nullptr) throw std::system_error(std::make_error_code(std::errc::not_enough_memory));
    // The thread's copy is the last: this one goes before it, on the stream's own thread.
    stream.reset();
    std::thread([kept] { delete kept; }).detach();
  } catch (const std::system_error& error) {
    base::log(base::LogLevel::error, "a stream destroyed by its own task is never freed: {}", error.what());
  }
}

}  // namespace

HostDevice::HostDevice(int index) : info_(describe_host_device(index)) {
  default_stream_ = create_stream();
}
HostDevice::~HostDevice() {
  handles().streams.remove(default_stream_);
}

std::uintptr_t HostDevice::create_stream() {
  return handles().streams.add(std::make_shared<StreamOfDevice>(
      info_.index, fmt::format("host:{} stream {}", info_.index, handles().next_stream.fetch_add(1))));
}

void HostDevice::destroy_stream(std::uintptr_t stream) noexcept {
  if (stream == default_stream_) {
    base::log(base::LogLevel::error, "destruction of the default stream of host:{} is refused", info_.index);
    return;
  }
  auto removed = handles().streams.remove(stream);
  if (removed == nullptr) return report_bad_handle("stream", stream);
  if (removed->stream.is_orphaned()) return abandon(std::move(removed));
  if (removed->stream.is_running_here()) destroy_elsewhere(std::move(removed));
}

void HostDevice::sync_stream(std::uintptr_t stream) {
  stream_of(stream, info_).sync();
}
bool HostDevice::is_stream_done(std::uintptr_t stream) {
  return stream_of(stream, info_).is_done();
}
Status HostDevice::stream_status(std::uintptr_t stream) {
  return stream_of(stream, info_).status();
}
void HostDevice::launch(std::uintptr_t stream, HostTask task) {
  stream_of(stream, info_).launch(Work(std::move(task)));
}
Status HostDevice::run(std::uintptr_t stream, FunctionRef<Status()> task) {
  return stream_of(stream, info_).run(task);
}
void HostDevice::copy(std::uintptr_t stream, void* destination, const void* source, std::size_t bytes) {
  stream_of(stream, info_).launch(Work(CopyWork{destination, source, bytes}));
}
void HostDevice::fill(std::uintptr_t stream, void* destination, std::uint8_t value, std::size_t bytes) {
  stream_of(stream, info_).launch(Work(FillWork{destination, bytes, value}));
}

void HostDevice::begin_capture(std::uintptr_t stream) {
  stream_of(stream, info_).begin_capture();
}
std::uintptr_t HostDevice::end_capture(std::uintptr_t stream) {
  return handles().graphs.add(stream_of(stream, info_).end_capture());
}
bool HostDevice::is_capturing(std::uintptr_t stream) {
  return stream_of(stream, info_).is_capturing();
}
void HostDevice::launch_graph(std::uintptr_t graph, std::uintptr_t stream) {
  stream_of(stream, info_).launch(handles().graphs.shared(graph));
}
void HostDevice::destroy_graph(std::uintptr_t graph) noexcept {
  auto removed = handles().graphs.remove(graph);
  if (removed == nullptr) return report_bad_handle("graph", graph);
  if (removed->is_orphaned()) abandon(std::move(removed));
}

std::uintptr_t HostDevice::create_event() {
  return handles().events.add(std::make_shared<HostEvent>(info_.index));
}
void HostDevice::destroy_event(std::uintptr_t event) noexcept {
  if (handles().events.remove(event) == nullptr) report_bad_handle("event", event);
}
void HostDevice::record_event(std::uintptr_t event, std::uintptr_t stream) {
  HostEvent& found = handles().events.get(event);
  if (found.device() != info_.index)
    refuse_foreign("event", fmt::format("host:{}", found.device()), fmt::format("host:{}", info_.index));
  stream_of(stream, info_).record(found);
}
void HostDevice::wait_event(std::uintptr_t event, std::uintptr_t stream) {
  stream_of(stream, info_).wait(handles().events.get(event));
}
bool HostDevice::is_event_done(std::uintptr_t event) {
  return handles().events.get(event).is_done();
}
void HostDevice::sync_event(std::uintptr_t event) {
  handles().events.get(event).sync();
}
std::chrono::nanoseconds HostDevice::event_interval(std::uintptr_t start, std::uintptr_t end) {
  const std::uint64_t from = handles().events.get(start).time_ns("start");
  const std::uint64_t to = handles().events.get(end).time_ns("end");
  return std::chrono::nanoseconds(static_cast<std::int64_t>(to - from));
}

}  // namespace tugline::device::host

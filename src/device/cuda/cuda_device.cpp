// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/cuda_device.h"

#include <fmt/format.h>

#include <atomic>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/log.h"
#include "device/cuda/context.h"
#include "device/cuda/stream.h"
#include "device/handle_table.h"
#include "device/refusals.h"

namespace tugline::device::cuda {
namespace {

// One set of handles for all GPUs, so that streams of one can wait for events of another. Never destroyed:
// streams of static lifetime may outlive any order of destruction.
struct Handles {
  HandleTable<CudaStream> streams{"stream", 4};
  HandleTable<CudaEvent> events{"event", 5};
  HandleTable<CudaGraph> graphs{"graph", 6};
  std::mutex adopting;
  std::map<std::pair<int, CUstream>, std::uintptr_t> adopted;
  std::atomic<int> next_stream = 0;
};
Handles& handles() {
  static Handles* all = new Handles;
  return *all;
}

// A stream destroyed by one of its own tasks: that thread cannot wait for the task's end.
void destroy_elsewhere(CUcontext context, std::shared_ptr<CudaStream> stream) {
  // Kept where a thread cannot be started: a stream that is never freed is better than one that waits for
  // itself.
  auto* kept = new std::shared_ptr<CudaStream>(std::move(stream));
  try {
    std::thread([context, kept] {
      try {
        ContextGuard guard(context);
        delete kept;
      } catch (const Error& error) {
        base::log(base::LogLevel::error, "a stream could not be destroyed: {}", error.what());
      }
    }).detach();
  } catch (const std::system_error& error) {
    base::log(base::LogLevel::error, "a stream destroyed by its own task is never freed: {}", error.what());
  }
}

CudaStream& stream_of(std::uintptr_t handle, const DeviceInfo& info) {
  CudaStream& found = handles().streams.get(handle);
  if (found.device() != info.index)
    refuse_foreign("stream", fmt::format("cuda:{}", found.device()), fmt::format("cuda:{}", info.index));
  return found;
}

}  // namespace

std::uintptr_t CudaDevice::create_stream() {
  ContextGuard guard(context_);
  return handles().streams.add(std::make_shared<CudaStream>(
      info_.index, context_, fmt::format("{} stream {}", label(), handles().next_stream.fetch_add(1))));
}

void CudaDevice::destroy_stream(std::uintptr_t stream) noexcept {
  if (stream == default_stream_) {
    base::log(base::LogLevel::error, "destruction of the default stream of {} is refused", label());
    return;
  }
  if (is_forked()) return;  // the parent's
  try {
    ContextGuard guard(context_);
    auto removed = handles().streams.remove(stream);
    if (removed == nullptr) return report_bad_handle("stream", stream);
    if (is_running_task_of(removed.get())) destroy_elsewhere(context_, std::move(removed));
  } catch (const Error& error) {
    base::log(base::LogLevel::error, "a stream could not be destroyed: {}", error.what());
  }
}

std::uintptr_t CudaDevice::adopt_stream(std::uintptr_t native) {
  ContextGuard guard(context_);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): that is what a handle is
  const auto stream = reinterpret_cast<CUstream>(native);
  std::lock_guard lock(handles().adopting);
  std::uintptr_t& handle = handles().adopted[{info_.index, stream}];
  if (handle == 0) {
    handle = handles().streams.add(std::make_shared<CudaStream>(
        info_.index, context_, fmt::format("{} stream {:#x} of the caller", label(), native), stream));
  }
  return handle;
}
std::uintptr_t CudaDevice::native_stream(std::uintptr_t stream) {
  return reinterpret_cast<std::uintptr_t>(stream_of(stream, info_).handle());
}

void CudaDevice::sync_stream(std::uintptr_t stream) {
  ContextGuard guard(context_);
  stream_of(stream, info_).sync();
}
bool CudaDevice::is_stream_done(std::uintptr_t stream) {
  ContextGuard guard(context_);
  return stream_of(stream, info_).is_done();
}
Status CudaDevice::stream_status(std::uintptr_t stream) {
  return stream_of(stream, info_).status();
}
void CudaDevice::launch(std::uintptr_t stream, HostTask task) {
  ContextGuard guard(context_);
  stream_of(stream, info_).launch(std::move(task));
}
Status CudaDevice::run(std::uintptr_t stream, FunctionRef<Status()> task) {
  ContextGuard guard(context_);
  return stream_of(stream, info_).run(task);
}
void CudaDevice::copy(std::uintptr_t stream, void* destination, const void* source, std::size_t bytes) {
  ContextGuard guard(context_);
  stream_of(stream, info_).copy(destination, source, bytes);
}
void CudaDevice::fill(std::uintptr_t stream, void* destination, std::uint8_t value, std::size_t bytes) {
  ContextGuard guard(context_);
  stream_of(stream, info_).fill(destination, value, bytes);
}

void CudaDevice::begin_capture(std::uintptr_t stream) {
  ContextGuard guard(context_);
  stream_of(stream, info_).begin_capture();
}
std::uintptr_t CudaDevice::end_capture(std::uintptr_t stream) {
  ContextGuard guard(context_);
  return handles().graphs.add(stream_of(stream, info_).end_capture());
}
bool CudaDevice::is_capturing(std::uintptr_t stream) {
  return stream_of(stream, info_).is_capturing();
}
void CudaDevice::launch_graph(std::uintptr_t graph, std::uintptr_t stream) {
  ContextGuard guard(context_);
  stream_of(stream, info_).launch(handles().graphs.shared(graph));
}
void CudaDevice::destroy_graph(std::uintptr_t graph) noexcept {
  if (is_forked()) return;
  if (handles().graphs.remove(graph) == nullptr) report_bad_handle("graph", graph);
}

std::uintptr_t CudaDevice::create_event() {
  ContextGuard guard(context_);
  return handles().events.add(std::make_shared<CudaEvent>(info_.index, label()));
}
void CudaDevice::destroy_event(std::uintptr_t event) noexcept {
  if (is_forked()) return;
  try {
    ContextGuard guard(context_);
    if (handles().events.remove(event) == nullptr) report_bad_handle("event", event);
  } catch (const Error& error) {
    base::log(base::LogLevel::error, "an event could not be destroyed: {}", error.what());
  }
}
void CudaDevice::record_event(std::uintptr_t event, std::uintptr_t stream) {
  ContextGuard guard(context_);
  CudaEvent& found = handles().events.get(event);
  if (found.device() != info_.index) refuse_foreign("event", fmt::format("cuda:{}", found.device()), label());
  stream_of(stream, info_).record(found);
}
void CudaDevice::wait_event(std::uintptr_t event, std::uintptr_t stream) {
  ContextGuard guard(context_);
  stream_of(stream, info_).wait(handles().events.get(event));
}
bool CudaDevice::is_event_done(std::uintptr_t event) {
  ContextGuard guard(context_);
  return handles().events.get(event).is_done();
}
void CudaDevice::sync_event(std::uintptr_t event) {
  ContextGuard guard(context_);
  handles().events.get(event).sync();
}
std::chrono::nanoseconds CudaDevice::event_interval(std::uintptr_t start, std::uintptr_t end) {
  ContextGuard guard(context_);
  return handles().events.get(end).since(handles().events.get(start));
}

CudaDevice::~CudaDevice() {
  if (is_forked()) return;
  try {
    ContextGuard guard(context_);
    handles().streams.remove(default_stream_);
  } catch (const Error& error) {
    base::log(base::LogLevel::error, "the default stream of {} could not be destroyed: {}", label(),
              error.what());
  }
}

std::string CudaDevice::label() const {
  return fmt::format("cuda:{}", info_.index);
}

}  // namespace tugline::device::cuda

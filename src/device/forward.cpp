// SPDX-License-Identifier: Apache-2.0
// Owners and views of include/tugline/device.h: they check what spans two devices and forward to the backend.
#include <fmt/format.h>

#include "tugline/device.h"

namespace tugline {
namespace {

std::string label(const Device& device) {
  return fmt::format("{}:{}", name_of(device.info().kind), device.info().index);
}

// Handles mean something only within a backend.
void require_same_kind(const char* operation, const Device& stream_device, const Device& other,
                       const char* what) {
  if (stream_device.info().kind == other.info().kind) return;
  throw Error(
      ErrorCode::unsupported,
      fmt::format("{} on a stream of {} with {} of {}", operation, label(stream_device), what, label(other)),
      "use events and graphs on the kind of device they were made for, and sync() between kinds",
      {.operation = operation, .device = label(stream_device)});
}

}  // namespace

Device::~Device() = default;

std::uintptr_t Device::adopt_stream(std::uintptr_t native) {
  throw Error(ErrorCode::unsupported,
              fmt::format("{} has no streams of others ({:#x} was given)", label(*this), native),
              "make a stream with Device::stream()",
              {.operation = "from_native_handle", .device = label(*this)});
}
std::uintptr_t Device::native_stream(std::uintptr_t) {
  throw Error(ErrorCode::unsupported, fmt::format("streams of {} have no native handle", label(*this)),
              "use the stream through tugline", {.operation = "native_handle", .device = label(*this)});
}

bool EventRef::is_done() const {
  return device_->is_event_done(handle_);
}
void EventRef::sync() const {
  device_->sync_event(handle_);
}

StreamRef StreamRef::from_native_handle(Device& device, std::uintptr_t native) {
  if (native == 0) {
    throw Error(ErrorCode::invalid_argument, "a stream from the native handle 0",
                "name the device's default stream",
                {.operation = "from_native_handle", .device = label(device)});
  }
  return {device, device.adopt_stream(native)};
}
std::uintptr_t StreamRef::native_handle() const {
  return device_->native_stream(handle_);
}
void StreamRef::sync() const {
  device_->sync_stream(handle_);
}
bool StreamRef::is_done() const {
  return device_->is_stream_done(handle_);
}
void StreamRef::wait(EventRef event) const {
  require_same_kind("wait", *device_, event.device(), "an event");
  device_->wait_event(event.get(), handle_);
}
void StreamRef::record(EventRef event) const {
  require_same_kind("record", *device_, event.device(), "an event");
  device_->record_event(event.get(), handle_);
}
void StreamRef::launch(HostTask task) const {
  device_->launch(handle_, std::move(task));
}
void StreamRef::copy(void* destination, const void* source, std::size_t bytes) const {
  device_->copy(handle_, destination, source, bytes);
}
void StreamRef::fill(void* destination, std::uint8_t value, std::size_t bytes) const {
  device_->fill(handle_, destination, value, bytes);
}
Status StreamRef::run(FunctionRef<Status()> task) const {
  return device_->run(handle_, task);
}
Status StreamRef::status() const {
  return device_->stream_status(handle_);
}
bool StreamRef::is_capturing() const {
  return device_->is_capturing(handle_);
}

Event::Event(Device& device) : device_(&device), handle_(device.create_event()) {}
Event::~Event() {
  if (handle_ != 0) device_->destroy_event(handle_);
}
Event& Event::operator=(Event&& other) noexcept {
  if (this != &other) {
    if (handle_ != 0) device_->destroy_event(handle_);
    device_ = other.device_;
    handle_ = std::exchange(other.handle_, 0);
  }
  return *this;
}
std::chrono::nanoseconds Event::since(EventRef start) const {
  require_same_kind("since", *device_, start.device(), "an event");
  return device_->event_interval(start.get(), handle_);
}

Graph::~Graph() {
  if (handle_ != 0) device_->destroy_graph(handle_);
}
Graph& Graph::operator=(Graph&& other) noexcept {
  if (this != &other) {
    if (handle_ != 0) device_->destroy_graph(handle_);
    device_ = other.device_;
    handle_ = std::exchange(other.handle_, 0);
  }
  return *this;
}
void Graph::launch(StreamRef stream) const {
  require_same_kind("launch of a graph", stream.device(), *device_, "a graph");
  stream.device().launch_graph(handle_, stream.get());
}

Stream::Stream(Device& device) : device_(&device), handle_(device.create_stream()) {}
Stream::~Stream() {
  if (handle_ != 0) device_->destroy_stream(handle_);
}
Stream& Stream::operator=(Stream&& other) noexcept {
  if (this != &other) {
    if (handle_ != 0) device_->destroy_stream(handle_);
    device_ = other.device_;
    handle_ = std::exchange(other.handle_, 0);
  }
  return *this;
}
void Stream::begin_capture() const {
  device_->begin_capture(handle_);
}
Graph Stream::end_capture() const {
  return {*device_, device_->end_capture(handle_)};
}

}  // namespace tugline

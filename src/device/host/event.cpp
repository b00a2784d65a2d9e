// SPDX-License-Identifier: Apache-2.0
#include "device/host/event.h"

#include <fmt/format.h>

#include <utility>

#include "base/clock.h"

namespace tugline::device::host {

void EventRecord::complete(FailurePtr failure) noexcept {
  // Notified under the lock: a waiter that returns may drop the last reference to this record.
  std::lock_guard lock(mutex_);
  failure_ = std::move(failure);
  time_ns_ = base::monotonic_ns();
  done_.store(true, std::memory_order_release);
  completed_.notify_all();
}

void EventRecord::wait() const noexcept {
  if (done()) return;
  std::unique_lock lock(mutex_);
  completed_.wait(lock, [this] { return done(); });
}

HostEvent::Latest HostEvent::latest() const {
  std::lock_guard lock(mutex_);
  return latest_;
}

void HostEvent::set(Latest latest) {
  {
    std::lock_guard lock(mutex_);
    std::swap(latest_, latest);
  }
  // The previous record is released outside the lock.
}

std::shared_ptr<EventRecord> HostEvent::real_record(const char* operation) const {
  Latest current = latest();
  if (auto* place = std::get_if<CapturedPlace>(&current)) {
    place->capture->break_off(fmt::format("{} of an event that was recorded in the capture", operation));
    throw Error(
        ErrorCode::invalid_usage,
        fmt::format("{} of an event whose last record was captured: it is a place in a graph, not in time",
                    operation),
        "record the event outside the capture, or use one event inside and another outside",
        {.operation = operation, .device = fmt::format("host:{}", device_)});
  }
  auto* record = std::get_if<std::shared_ptr<EventRecord>>(&current);
  return record != nullptr ? *record : nullptr;
}

bool HostEvent::is_done() const {
  auto record = real_record("is_done");
  return record == nullptr || record->done();
}

void HostEvent::sync() const {
  auto record = real_record("sync");
  if (record == nullptr) return;
  record->wait();
  if (record->failure() != nullptr) throw Error(record->failure()->error);
}

std::uint64_t HostEvent::time_ns(const char* which) const {
  auto record = real_record("time");
  if (record == nullptr || !record->done()) {
    throw Error(
        ErrorCode::invalid_usage,
        fmt::format("the {} event {}", which, record == nullptr ? "was never recorded" : "is not done yet"),
        "record both events and sync() the later one before asking for the time between them",
        {.operation = "event interval", .device = fmt::format("host:{}", device_)});
  }
  return record->time_ns();
}

}  // namespace tugline::device::host

// SPDX-License-Identifier: Apache-2.0
// Events. An event only points to its latest record; whoever waits holds the record itself. So recording
// again does not disturb earlier waits, and an event may be destroyed while waits for it are queued.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <variant>

#include "device/failure.h"
#include "device/host/capture.h"

namespace tugline::device::host {

/// One recording: completed once, by the stream it was recorded on.
class EventRecord {
 public:
  /// `failure`: that of the recording stream. Release; pairs with done().
  void complete(FailurePtr failure) noexcept;
  bool done() const noexcept { return done_.load(std::memory_order_acquire); }
  void wait() const noexcept;
  /// Requires done().
  const FailurePtr& failure() const noexcept { return failure_; }
  std::uint64_t time_ns() const noexcept { return time_ns_; }

 private:
  std::atomic<bool> done_ = false;
  FailurePtr failure_;
  std::uint64_t time_ns_ = 0;
  mutable std::mutex mutex_;
  mutable std::condition_variable completed_;
};

/// Thread-safe.
class HostEvent {
 public:
  using Latest = std::variant<std::monostate, std::shared_ptr<EventRecord>, CapturedPlace>;

  explicit HostEvent(int device) noexcept : device_(device) {}
  int device() const noexcept { return device_; }
  Latest latest() const;
  void set(Latest latest);

  bool is_done() const;
  void sync() const;
  /// Time of the latest record. Throws invalid_usage unless recorded and done.
  std::uint64_t time_ns(const char* which) const;

 private:
  std::shared_ptr<EventRecord> real_record(const char* operation) const;

  const int device_;
  mutable std::mutex mutex_;
  Latest latest_;
};

}  // namespace tugline::device::host

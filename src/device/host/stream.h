// SPDX-License-Identifier: Apache-2.0
// A host stream: a queue, and a thread that starts with the first task that has to wait for its turn.
//
// One state word decides who may run. Zero is idle: a blocking run() takes the stream with one
// compare-and-swap and runs on the caller's thread (no lock, no thread, no allocation: an 8-byte all-reduce
// goes through here). Any other bit sends callers to the mutex. Work enqueued while a caller runs waits for
// it; the caller sees kQueued or kWaiter when it leaves and wakes whoever waits. Memory order: taking kBusy
// acquires, giving it up releases; so work of a stream happens in order, whichever thread runs it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>

#include "device/failure.h"
#include "device/host/event.h"
#include "device/host/graph.h"

namespace tugline::device::host {

/// Thread-safe, the destructor excepted.
class HostStream {
 public:
  explicit HostStream(std::string where);
  /// Waits for all work. A capture in progress is broken.
  ~HostStream();
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  const std::string& where() const noexcept { return where_; }

  Status run(FunctionRef<Status()> task) {
    std::uint32_t idle = 0;
    if (state_.compare_exchange_strong(idle, kBusy, std::memory_order_acquire, std::memory_order_relaxed)) {
      return run_here(task);
    }
    return run_in_turn(task);
  }
  void launch(Work work);
  void launch(const std::shared_ptr<HostGraph>& graph);
  void record(HostEvent& event);
  void wait(const HostEvent& event);
  void sync();
  bool is_done();
  Status status();

  void begin_capture();
  std::shared_ptr<HostGraph> end_capture();
  bool is_capturing();

  /// True on the thread that runs a task of this stream at the moment.
  bool is_running_here() const noexcept { return executor_.load(std::memory_order_relaxed) == thread_mark(); }
  /// True in a forked child when the thread stayed in the parent: nothing may wait for this stream, nor
  /// destroy it. Streams without a thread at the time of the fork go on in the child.
  bool is_orphaned() const noexcept;
  /// Starts the thread now instead of with the first task. Throws Error{system}.
  void start();

 private:
  static constexpr std::uint32_t kBusy = 1;       // somebody runs work of this stream
  static constexpr std::uint32_t kQueued = 2;     // the queue is not empty, or its last item still runs
  static constexpr std::uint32_t kWaiter = 4;     // somebody waits for the stream
  static constexpr std::uint32_t kCapturing = 8;  // enqueued work goes to capture_
  static constexpr std::uint32_t kFailed = 16;    // failure_ is set

  struct RunCall {
    FunctionRef<Status()> task;
    Status status;
    std::exception_ptr exception;
  };
  enum class OnFailure : std::uint8_t { inherit, ignore };
  struct WaitItem {
    std::shared_ptr<EventRecord> record;
    OnFailure on_failure;
  };
  using Item =
      std::variant<Work, RunCall*, std::shared_ptr<EventRecord>, WaitItem, std::shared_ptr<HostGraph>>;
  using Lock = std::unique_lock<std::mutex>;

  // Lets go of the stream at the end of the scope, whatever the task throws.
  struct Busy {
    HostStream& stream;
    ~Busy() { stream.leave(); }
  };
  Status run_here(FunctionRef<Status()> task) {
    executor_.store(thread_mark(), std::memory_order_relaxed);
    Busy busy{*this};
    return task();
  }
  void leave() noexcept {
    executor_.store(nullptr, std::memory_order_relaxed);
    std::uint32_t only_busy = kBusy;
    if (!state_.compare_exchange_strong(only_busy, 0, std::memory_order_release, std::memory_order_relaxed)) {
      leave_and_wake();
    }
  }
  void leave_and_wake() noexcept;
  static const void* thread_mark() noexcept {
    static thread_local char mark = 0;
    return &mark;
  }

  Status run_in_turn(FunctionRef<Status()> task);
  bool idle() const noexcept { return state_.load(std::memory_order_relaxed) == 0; }
  void start_locked();
  std::uint64_t push(Item item);
  void wait_until_finished(Lock& lock, std::uint64_t ticket);
  bool capturing();
  void refuse_when_capturing(const char* operation);
  void refuse_own_task(const char* operation) const;
  void refuse_orphaned() const;
  void work();
  FailurePtr perform(Item& item, FailurePtr failure) noexcept;
  void set_failure(FailurePtr failure) noexcept;
  FailurePtr take_failure() noexcept;

  std::atomic<std::uint32_t> state_ = 0;
  std::atomic<const void*> executor_ =
      nullptr;  // mark of the thread that runs work; finds calls that wait for themselves
  const std::string where_;

  std::mutex mutex_;  // guards all below; taken after a graph's lock, before a capture's and an event's
  std::condition_variable work_;
  std::condition_variable done_;
  std::deque<Item> queue_;
  std::uint64_t enqueued_ = 0;
  std::uint64_t finished_ = 0;
  std::uint64_t next_wake_ = std::numeric_limits<std::uint64_t>::max();  // smallest ticket waited for
  int waiters_ = 0;
  bool thread_has_stream_ = false;
  bool stopping_ = false;
  FailurePtr failure_;
  std::shared_ptr<Capture> capture_;
  std::size_t lane_ = 0;
  std::thread thread_;
  std::atomic<std::uint32_t> thread_process_ = 0;  // which process started it, counted in forks; 0: no thread
};

}  // namespace tugline::device::host

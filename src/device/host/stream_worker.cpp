// SPDX-License-Identifier: Apache-2.0
// The queue's side of HostStream: its thread, its waiters, its failures.
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/fork.h"
#include "device/host/stream.h"

namespace tugline::device::host {
namespace {

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

}  // namespace

bool HostStream::is_orphaned() const noexcept {
  const std::uint32_t started_in = thread_process_.load(std::memory_order_relaxed);
  return started_in != 0 && started_in != base::fork_count();
}

void HostStream::refuse_orphaned() const {
  if (!is_orphaned()) return;
  throw Error(ErrorCode::invalid_usage,
              "use of a host stream in a forked child, while its thread is the parent's",
              "make streams of your own in the child, fork before work is enqueued, or call exec",
              {.operation = "enqueue", .device = where_});
}

void HostStream::start() {
  Lock lock(mutex_);
  start_locked();
}

void HostStream::start_locked() {
  if (thread_.joinable()) return;
  // The new thread inherits a full signal mask: handlers of the program run on the program's threads.
  sigset_t all;
  sigset_t previous;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &previous);
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &previous, nullptr);
    throw Error(ErrorCode::system, Remedy::free_memory, "a stream could not start its thread",
                "raise the limit on processes (ulimit -u, the cgroup's pids.max), or use fewer streams",
                {.operation = "start of a stream", .device = where_, .native_code = error.code().value()});
  }
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  thread_process_.store(base::fork_count(), std::memory_order_relaxed);
  pthread_setname_np(thread_.native_handle(), "tugline-stream");
}

std::uint64_t HostStream::push(Item item) {
  refuse_orphaned();
  start_locked();
  queue_.push_back(std::move(item));
  state_.fetch_or(kQueued, std::memory_order_relaxed);
  if (!thread_has_stream_) work_.notify_one();
  return ++enqueued_;
}

void HostStream::work() {
  Lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] {
      if (queue_.empty()) return stopping_;
      // A caller of run() may hold the stream; it wakes us when it leaves, because kQueued is set.
      return (state_.fetch_or(kBusy, std::memory_order_acquire) & kBusy) == 0;
    });
    if (queue_.empty()) return;
    thread_has_stream_ = true;
    executor_.store(thread_mark(), std::memory_order_relaxed);
    while (!queue_.empty()) {
      {
        Item item = std::move(queue_.front());
        queue_.pop_front();
        const FailurePtr before = failure_;
        lock.unlock();
        FailurePtr after = perform(item, before);
        // Destroyed before it counts as finished: what a task holds is released when sync() returns.
        item = static_cast<RunCall*>(nullptr);
        lock.lock();
        // An inherited failure is not set again: sync() may have thrown and cleared it meanwhile.
        if (after != before) set_failure(std::move(after));
      }
      ++finished_;
      if (finished_ >= next_wake_) {
        next_wake_ = std::numeric_limits<std::uint64_t>::max();
        done_.notify_all();
      }
    }
    thread_has_stream_ = false;
    executor_.store(nullptr, std::memory_order_relaxed);
    state_.fetch_and(~(kBusy | kQueued), std::memory_order_release);
    if (waiters_ > 0) done_.notify_all();
  }
}

FailurePtr HostStream::perform(Item& item, FailurePtr failure) noexcept {
  return std::visit(
      Overloaded{
          [&](const Work& work) { return failure != nullptr ? failure : execute(work, where_); },
          [&](RunCall* call) {
            if (failure != nullptr) {
              call->status = failure->status;
              return failure;
            }
            try {
              call->status = call->task();
            } catch (...) {
              call->exception = std::current_exception();  // rethrown by run() on the caller's thread
            }
            return FailurePtr();
          },
          [&](const std::shared_ptr<EventRecord>& record) {
            record->complete(failure);
            return failure;
          },
          [&](const WaitItem& wait) {
            wait.record->wait();
            if (failure == nullptr && wait.on_failure == OnFailure::inherit) failure = wait.record->failure();
            return failure;
          },
          [&](const std::shared_ptr<HostGraph>& graph) { return graph->replay(failure); },
      },
      item);
}

void HostStream::leave_and_wake() noexcept {
  // Given up under the lock: a destructor that waits for this must not go on before the lock is released.
  std::lock_guard lock(mutex_);
  state_.fetch_and(~kBusy, std::memory_order_release);
  if (!queue_.empty()) work_.notify_one();
  done_.notify_all();
}

void HostStream::wait_until_finished(Lock& lock, std::uint64_t ticket) {
  ++waiters_;
  // Keeps new callers of run() from the fast path, so that they cannot starve this waiter.
  state_.fetch_or(kWaiter, std::memory_order_relaxed);
  while (true) {
    const bool run_elsewhere =
        (state_.load(std::memory_order_acquire) & kBusy) != 0 && !thread_has_stream_ && !is_running_here();
    if (finished_ >= ticket && !run_elsewhere) break;
    next_wake_ = std::min(next_wake_, ticket);
    done_.wait(lock);
  }
  if (--waiters_ == 0) state_.fetch_and(~kWaiter, std::memory_order_relaxed);
}

void HostStream::set_failure(FailurePtr failure) noexcept {
  if (failure_ != nullptr) return;
  failure_ = std::move(failure);
  state_.fetch_or(kFailed, std::memory_order_relaxed);
}

FailurePtr HostStream::take_failure() noexcept {
  state_.fetch_and(~kFailed, std::memory_order_relaxed);
  return std::exchange(failure_, nullptr);
}

}  // namespace tugline::device::host

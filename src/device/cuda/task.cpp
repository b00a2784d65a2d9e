// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/task.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/log.h"

namespace tugline::device::cuda {
namespace {

thread_local const void* running_stream = nullptr;

void run_task(Task* task) noexcept {
  running_stream = task->stream;
  FailurePtr failure;
  if (task->always || task->scope->before(task->ticket) == nullptr)
    failure = execute(task->work, task->where);
  std::shared_ptr<Cell> done = task->done;
  const std::uint32_t value = task->done_value;
  // The task's captures go before its end is known, and the failure is known before anything behind it runs.
  if (!task->repeats) task->work = nullptr;
  task->scope->finish(task->ticket, std::move(failure));
  if (!task->repeats) delete task;
  running_stream = nullptr;
  done->word.store(value, std::memory_order_release);
}

// Threads are kept and used again. Each task gets one at once, however many wait: a task may wait for work
// that is behind another one.
class Threads {
 public:
  void post(Task* task) {
    {
      std::lock_guard lock(mutex_);
      waiting_.push_back(task);
      if (idle_ >= waiting_.size()) {
        arrived_.notify_one();
        return;
      }
    }
    try {
      std::thread([this] { serve(); }).detach();
    } catch (const std::system_error& error) {
      base::log(
          base::LogLevel::warn,
          "no thread for a task of a CUDA stream ({}): it runs on the driver's own, where it holds up others",
          error.what());
      if (take(task)) run_task(task);
    }
  }

 private:
  bool take(Task* task) {
    std::lock_guard lock(mutex_);
    return std::erase(waiting_, task) != 0;  // a thread that became idle may have it already
  }

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      arrived_.wait(lock, [this] { return !waiting_.empty(); });
      --idle_;
      Task* task = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      run_task(task);
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Task*> waiting_;
  std::size_t idle_ = 0;
};

}  // namespace

void CUDA_CB post_task(void* task) {
  static auto* threads = new Threads;  // its threads run until the process ends
  threads->post(static_cast<Task*>(task));
}

bool is_running_task_of(const void* stream) noexcept {
  return running_stream == stream;
}

}  // namespace tugline::device::cuda

// SPDX-License-Identifier: Apache-2.0
#include "comm/visit.h"

#include <chrono>
#include <thread>

#include "base/log.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace tugline::comm {
namespace {

// ThreadSanitizer takes the flags of two ranks for different words, because each has its own mapping of them.
#if defined(__SANITIZE_THREAD__)
void acquire(const Buffers& buffers) noexcept {
  for (void* buffer : {buffers.send, buffers.recv})
    if (buffer != nullptr) __tsan_acquire(buffer);
}
void release(const Buffers& buffers) noexcept {
  for (void* buffer : {buffers.send, buffers.recv})
    if (buffer != nullptr) __tsan_release(buffer);
}
#else
void acquire(const Buffers&) noexcept {}
void release(const Buffers&) noexcept {}
#endif

/// They are at work there, not waiting: this ends by itself, soon unless a process is stopped.
class VisitorWait {
 public:
  void look_again(std::uint32_t owner, std::uint32_t rank) noexcept {
    if (++looks_ <= kYields) {
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(kNap);
    if (looks_ != report_at_) return;
    report_at_ = kYields + (looks_ - kYields) * 2;
    base::log(
        base::LogLevel::warn,
        "rank {} has failed and waits for rank {}, which is still at its buffers (is its process stopped?)",
        owner, rank);
  }

 private:
  static constexpr unsigned kYields = 1000;
  static constexpr std::chrono::milliseconds kNap{1};
  unsigned looks_ = 0;
  unsigned report_at_ = kYields + 1000;  // after a second, two, four ...
};

bool is_behind(std::uint64_t value, std::uint64_t sequence) noexcept {
  return static_cast<std::int64_t>(value - sequence) < 0;
}

void say_withdrawn(std::atomic<std::uint64_t>& withdrawn, std::uint64_t sequence) noexcept {
  auto seen = withdrawn.load(std::memory_order_relaxed);
  while (is_behind(seen, sequence) &&
         !withdrawn.compare_exchange_weak(seen, sequence, std::memory_order_seq_cst)) {
  }
}

}  // namespace

Visits::Visits(const Epoch& epoch, std::uint64_t sequence, std::span<const Buffers> buffers) noexcept
    : epoch_(epoch), sequence_(sequence), buffers_(buffers) {
  for (const auto& one : buffers_) acquire(one);
}

bool Visits::begin() noexcept {
  if (there_) return true;
  if (withdrawn_ >= 0) return false;
  there_ = true;
  epoch_.bank.progress(epoch_.rank).visiting.store(sequence_, std::memory_order_seq_cst);
  for (std::uint32_t rank = 0; rank < epoch_.size; ++rank) {
    if (is_behind(epoch_.bank.withdrawal(rank).withdrawn.load(std::memory_order_seq_cst), sequence_))
      continue;
    withdrawn_ = static_cast<std::int32_t>(rank);
    end();
    return false;
  }
  return true;
}

void Visits::end() noexcept {
  if (!there_) return;
  there_ = false;
  for (const auto& one : buffers_) release(one);
  epoch_.bank.progress(epoch_.rank).visiting.store(0, std::memory_order_release);
}

void Visits::finish() noexcept {
  acquire(buffers_[epoch_.rank]);
}

void offer_buffers(const Buffers& buffers) noexcept {
  release(buffers);
}

void take_back_buffers(const Buffers& buffers) noexcept {
  acquire(buffers);
}

void withdraw_buffers(const Epoch& epoch, std::uint64_t sequence, const Buffers& buffers,
                      FunctionRef<bool(std::uint32_t)> may_store) noexcept {
  say_withdrawn(epoch.bank.withdrawal(epoch.rank).withdrawn, sequence);
  for (std::uint32_t rank = 0; rank < epoch.size; ++rank) {
    if (rank == epoch.rank) continue;
    const auto& visiting = epoch.bank.progress(rank).visiting;
    VisitorWait wait;
    while (visiting.load(std::memory_order_seq_cst) == sequence && may_store(rank))
      wait.look_again(epoch.rank, rank);
  }
  acquire(buffers);
}

Visit::Visit(std::atomic<std::uint64_t>& visiting, const std::atomic<std::uint64_t>& withdrawn,
             std::uint64_t sequence, const std::byte* buffer) noexcept
    : visiting_(visiting), buffer_(buffer) {
  acquire({const_cast<std::byte*>(buffer_)});
  visiting_.store(sequence, std::memory_order_seq_cst);
  allowed_ = is_behind(withdrawn.load(std::memory_order_seq_cst), sequence);
}

Visit::~Visit() {
  release({const_cast<std::byte*>(buffer_)});
  visiting_.store(0, std::memory_order_release);
}

void withdraw_buffer(std::atomic<std::uint64_t>& withdrawn, const std::atomic<std::uint64_t>& visiting,
                     std::uint64_t sequence, const OwnedBuffer& buffer,
                     FunctionRef<bool(std::uint32_t)> may_store) noexcept {
  say_withdrawn(withdrawn, sequence);
  VisitorWait wait;
  while (visiting.load(std::memory_order_seq_cst) == sequence && may_store(buffer.visitor))
    wait.look_again(buffer.owner, buffer.visitor);
  acquire({static_cast<std::byte*>(const_cast<void*>(buffer.buffer))});
}

}  // namespace tugline::comm

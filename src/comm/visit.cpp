// SPDX-License-Identifier: Apache-2.0
#include "comm/visit.h"

#include <thread>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace tugline::comm {
namespace {

// ThreadSanitizer takes the flags of two ranks for different words, because each has its own mapping of them.
void acquire(const Buffers& buffers) noexcept {
#if defined(__SANITIZE_THREAD__)
  if (buffers.send != nullptr) __tsan_acquire(buffers.send);
  if (buffers.recv != nullptr) __tsan_acquire(buffers.recv);
#else
  (void)buffers;
#endif
}
void release(const Buffers& buffers) noexcept {
#if defined(__SANITIZE_THREAD__)
  if (buffers.send != nullptr) __tsan_release(buffers.send);
  if (buffers.recv != nullptr) __tsan_release(buffers.recv);
#else
  (void)buffers;
#endif
}

bool is_behind(std::uint64_t value, std::uint64_t sequence) noexcept {
  return static_cast<std::int64_t>(value - sequence) < 0;
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
    if (is_behind(epoch_.bank.progress(rank).withdrawn.load(std::memory_order_seq_cst), sequence_)) continue;
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

void offer_to_threads(const Buffers& buffers) noexcept {
  release(buffers);
}

void withdraw_from_threads(const Epoch& epoch, std::uint64_t sequence, const Buffers& buffers) noexcept {
  auto& withdrawn = epoch.bank.progress(epoch.rank).withdrawn;
  auto seen = withdrawn.load(std::memory_order_relaxed);
  while (is_behind(seen, sequence) &&
         !withdrawn.compare_exchange_weak(seen, sequence, std::memory_order_seq_cst)) {
  }
  for (std::uint32_t rank = 0; rank < epoch.size; ++rank) {
    if (rank == epoch.rank) continue;
    // They are at work there, not waiting: this ends by itself.
    while (epoch.bank.progress(rank).visiting.load(std::memory_order_seq_cst) == sequence)
      std::this_thread::yield();
  }
  acquire(buffers);
}

}  // namespace tugline::comm

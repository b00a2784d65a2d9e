// SPDX-License-Identifier: Apache-2.0
// Pools: shared memory that is allocated and freed in stream order, and used again without asking the system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "tugline/buffer.h"
#include "tugline/device.h"
#include "tugline/export.h"
#include "tugline/types.h"

namespace tugline {

struct PoolStatistics {
  std::uint64_t used_bytes = 0;  ///< allocated and not freed
  std::uint64_t used_high_bytes = 0;
  std::uint64_t reserved_bytes = 0;  ///< held by the pool, used or not
  std::uint64_t reserved_high_bytes = 0;
  std::uint64_t allocations = 0;
  std::uint64_t reuses = 0;        ///< allocations served by memory that was freed before
  std::uint64_t stream_waits = 0;  ///< of these, behind another stream's work, because memory was short
  std::uint64_t growths = 0;       ///< requests for more memory
};

template <Element T>
class PoolBuffer;

/// Memory that is freed on a stream: later allocations on that stream get it at once, because their work runs
/// behind the work that used it; others get it when the work enqueued before it was freed is done. (The
/// semantics of cudaMallocAsync.) The pool keeps what is freed until trim_to(). Its memory is zero-copy as
/// Job::allocate's is, but not zeroed. Thread-safe.
class TUGLINE_EXPORT MemoryPool {
 public:
  virtual ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// At least `bytes` bytes, aligned to 256, for work of `stream` from now on. Blocks only when the pool has
  /// to grow. Where memory is short it gives back what is unused, asks for no more than is needed, and lets
  /// the stream wait for memory that another stream is done with later; each is reported. Throws
  /// Error{out_of_memory} when that does not help, Error{invalid_argument} for 0 bytes, Error{invalid_usage}
  /// while the stream is capturing, Error{broker_lost}.
  virtual void* allocate(std::size_t bytes, StreamRef stream) = 0;
  /// Frees behind the work enqueued on `stream` so far; if other streams use the memory, let `stream` wait
  /// for them before. Does not block. Throws Error{invalid_argument} for an address that is not in use,
  /// Error{invalid_usage} while the stream is capturing.
  virtual void deallocate(void* address, StreamRef stream) = 0;
  /// Gives memory that nobody uses back until no more than `bytes` are reserved; returns the bytes given
  /// back.
  virtual std::uint64_t trim_to(std::uint64_t bytes) = 0;
  virtual PoolStatistics statistics() const = 0;

  /// `count` elements, freed on `stream` when the buffer is destroyed.
  template <Element T>
  PoolBuffer<T> allocate_buffer(std::size_t count, StreamRef stream) {
    return PoolBuffer<T>(shared(), allocate(memory::bytes_of(count, sizeof(T)), stream), count, stream);
  }

 protected:
  MemoryPool() = default;
  virtual std::shared_ptr<MemoryPool> shared() = 0;
};

/// Owner of `size()` elements of a pool. Movable. Its stream must live as long.
template <Element T>
class PoolBuffer {
 public:
  PoolBuffer(std::shared_ptr<MemoryPool> pool, void* data, std::size_t count, StreamRef stream) noexcept
      : pool_(std::move(pool)), data_(static_cast<T*>(data)), count_(count), stream_(stream) {}
  ~PoolBuffer() {
    if (pool_) pool_->deallocate(data_, stream_);
  }
  PoolBuffer(PoolBuffer&&) noexcept = default;
  PoolBuffer& operator=(PoolBuffer&& other) noexcept {
    PoolBuffer old(std::move(*this));
    pool_ = std::move(other.pool_);
    data_ = other.data_;
    count_ = other.count_;
    stream_ = other.stream_;
    return *this;
  }
  T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return count_; }
  std::span<T> span() const noexcept { return {data_, count_}; }
  operator std::span<T>() const noexcept { return span(); }

 private:
  std::shared_ptr<MemoryPool> pool_;
  T* data_;
  std::size_t count_;
  StreamRef stream_;
};

}  // namespace tugline

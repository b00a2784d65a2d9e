// SPDX-License-Identifier: Apache-2.0
// The record ring: what a rank did last, as plain 64-byte records in memory that outlives it. One writer, any
// number of readers in any process; a reader never delays the writer and never sees half a record.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

namespace tugline::base {

/// What one record says. The meaning of `kind` and of the details belongs to whoever writes them.
struct Record {
  std::uint64_t time_ns = 0;   ///< monotonic_ns()
  std::uint64_t sequence = 0;  ///< number of the operation
  std::uint64_t bytes = 0;
  std::uint32_t kind = 0;
  std::uint32_t communicator = 0;
  std::int32_t rank = -1;
  std::int32_t peer = -1;
  std::array<std::uint64_t, 2> detail{};
  friend bool operator==(const Record&, const Record&) = default;
};
inline constexpr std::size_t kRecordWords = 7;
static_assert(sizeof(Record) == kRecordWords * sizeof(std::uint64_t) && std::is_trivially_copyable_v<Record>);

/// The ring in memory. Zeroed memory is an empty ring that nobody has begun.
struct alignas(64) RecordRing {
  static constexpr std::uint32_t kMagic = 0x52474c54;  // "TLGR"
  static constexpr std::uint32_t kVersion = 1;

  std::atomic<std::uint32_t> magic;
  std::uint32_t version;
  std::uint64_t capacity;  ///< records; a power of two
  std::atomic<std::uint64_t> written;

  /// 2n + 1 while record n is written into the slot, 2n + 2 once it is whole. All words are atomics, so that
  /// a reader that loses the race reads old or new words, never undefined ones.
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> stamp;
    std::array<std::atomic<std::uint64_t>, kRecordWords> words;
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  Slot* slots() noexcept { return reinterpret_cast<Slot*>(this + 1); }
  const Slot* slots() const noexcept { return reinterpret_cast<const Slot*>(this + 1); }
};
static_assert(sizeof(RecordRing) == 64 && sizeof(RecordRing::Slot) == 64);

/// Memory for a ring of `capacity` records (a power of two).
constexpr std::size_t record_ring_bytes(std::size_t capacity) noexcept {
  return sizeof(RecordRing) + capacity * sizeof(RecordRing::Slot);
}

/// Writes records. One thread at a time; about 10 ns a record; allocates nothing and makes no system call.
class RecordWriter {
 public:
  /// Begins the ring in `memory` (64-byte aligned, `bytes` long, uses the largest power of two of records
  /// that fits), or goes on behind the last record when one of the same capacity is there. Throws
  /// Error{invalid_argument} when no record fits or the alignment is wrong.
  RecordWriter(void* memory, std::size_t bytes);

  void write(const Record& record) noexcept;
  std::uint64_t written() const noexcept { return next_; }

 private:
  RecordRing* ring_;
  std::uint64_t mask_;
  std::uint64_t next_;
};

/// Reads records, also of a writer that is hung or dead. Thread-safe. The memory may be mapped read-only.
class RecordReader {
 public:
  /// Throws Error{protocol} when there is no ring of this version in `memory`, or it does not fit `bytes`.
  RecordReader(const void* memory, std::size_t bytes);

  /// Records written so far; acquire, pairs with the writer's release.
  std::uint64_t written() const noexcept { return ring_->written.load(std::memory_order_acquire); }
  std::uint64_t capacity() const noexcept { return capacity_; }
  /// Record number `index`; none when it is not written yet, overwritten, or was left half written.
  std::optional<Record> read(std::uint64_t index) const noexcept;
  /// The last records, oldest first, at most `count`.
  std::vector<Record> last(std::size_t count) const;

 private:
  const RecordRing* ring_;
  std::uint64_t capacity_;
};

}  // namespace tugline::base

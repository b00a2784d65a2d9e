// SPDX-License-Identifier: Apache-2.0
// Which segment a pointer lies in: the ranges of this process that other members can map by a segment's id.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "broker/client.h"

namespace tugline::memory {

/// A place in a segment that the broker holds.
struct Window {
  broker::SegmentId segment = 0;
  std::uint64_t offset = 0;      ///< of the pointer, in bytes from the segment's begin
  std::uint64_t bytes_left = 0;  ///< from the pointer to the end of the range that was registered
  friend bool operator==(const Window&, const Window&) = default;
};

/// Ranges of one member, ordered by address. Thread-safe.
///
/// find() runs per operation, so it takes no lock: it searches an array of atomic words between two looks at
/// a version that writers make odd while they change the array (Boehm 2012: words are stored with release and
/// loaded with acquire, so the second look comes after them). A reader that keeps meeting writers waits for
/// the writers' lock instead of spinning against one that has lost its core.
class Windows {
 public:
  Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  /// The window of a pointer when all of [pointer, pointer + bytes) lies in one range. Some 10 ns.
  std::optional<Window> find(const void* pointer, std::size_t bytes) const noexcept;

  /// Makes [base, base + bytes) known as the segment's bytes from `offset` on. Throws
  /// Error{already_exists} when it overlaps a range that is known.
  void add(const void* base, std::uint64_t bytes, broker::SegmentId segment, std::uint64_t offset);
  /// Forgets the range that begins at `base`; nothing happens if there is none.
  void remove(const void* base) noexcept;
  std::size_t count() const noexcept;

 private:
  struct Range {
    std::uintptr_t begin = 0;
    std::uint64_t bytes = 0;
    broker::SegmentId segment = 0;
    std::uint64_t offset = 0;
  };
  struct Entry {
    std::atomic<std::uintptr_t> begin{0};
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<broker::SegmentId> segment{0};
    std::atomic<std::uint64_t> offset{0};
    Range load() const noexcept;
    void store(const Range& range) noexcept;
  };
  struct Table {
    explicit Table(std::size_t capacity) : entries(capacity) {}
    std::atomic<std::size_t> count{0};
    std::vector<Entry> entries;
    /// First entry that begins after `address`.
    std::size_t after(std::uintptr_t address) const noexcept;
  };
  static std::optional<Window> search(const Table& table, std::uintptr_t address, std::size_t bytes) noexcept;
  Table& with_room();

  mutable std::mutex writing_;
  std::atomic<std::uint64_t> version_{0};  ///< odd while the table changes
  std::atomic<Table*> table_;
  /// Older, smaller ones stay: a reader may still be in one. Together they are no larger than the newest.
  std::vector<std::unique_ptr<Table>> tables_;
};

/// A range that is known for as long as this object lives.
class WindowEntry {
 public:
  WindowEntry(Windows& windows, const void* base, std::uint64_t bytes, broker::SegmentId segment,
              std::uint64_t offset)
      : windows_(windows), base_(base) {
    windows_.add(base, bytes, segment, offset);
  }
  ~WindowEntry() { windows_.remove(base_); }
  WindowEntry(const WindowEntry&) = delete;
  WindowEntry& operator=(const WindowEntry&) = delete;

 private:
  Windows& windows_;
  const void* base_;
};

}  // namespace tugline::memory

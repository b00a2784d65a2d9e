// SPDX-License-Identifier: Apache-2.0
// Segments of other members, mapped into this process at first use and kept for the next.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/shared_memory.h"
#include "broker/client.h"

namespace tugline::memory {

namespace detail {
class Import;
struct ImportCounters;
}  // namespace detail

/// Keeps a mapping in place; give it back by destroying it. Movable. The mapping stays whole whatever becomes
/// of the segment's owner and of the cache.
class ImportLease {
 public:
  ImportLease() noexcept = default;
  explicit ImportLease(std::shared_ptr<const detail::Import> import) noexcept : import_(std::move(import)) {}
  ImportLease(ImportLease&&) noexcept = default;
  ImportLease& operator=(ImportLease&&) noexcept = default;
  explicit operator bool() const noexcept { return import_ != nullptr; }

  std::byte* data() const noexcept;      ///< the segment's first byte
  std::uint64_t bytes() const noexcept;  ///< of the whole segment
  base::Access access() const noexcept;  ///< read_only: a store into it is a fault

 private:
  std::shared_ptr<const detail::Import> import_;
};

/// Bounds; 0: none.
struct ImportLimits {
  std::uint64_t mappings = 0;
  std::uint64_t bytes = 0;
  /// As set: import_limit_mappings, import_limit_bytes.
  static ImportLimits from_settings();
};

struct ImportStatistics {
  std::uint64_t mappings = 0;  ///< in place now
  std::uint64_t bytes = 0;     ///< in place now
  std::uint64_t hits = 0;
  std::uint64_t imports = 0;    ///< requests to the broker that succeeded
  std::uint64_t evictions = 0;  ///< to keep to the bounds, or when memory was short
  std::uint64_t retired = 0;    ///< dropped because the owner has freed the segment or is gone
};

/// One member's imports. Thread-safe.
///
/// An entry holds a reference at the broker. When a segment's owner gives it back, or is gone, the broker
/// writes its id into the control segment; every call here looks there first (one load) and drops such
/// entries, a leased one when its last lease ends. So a freed segment is never served: asking for it again is
/// asking the broker, which knows it no more, and ids are not used twice.
class ImportCache {
 public:
  explicit ImportCache(std::shared_ptr<broker::Client> client,
                       ImportLimits limits = ImportLimits::from_settings());
  ~ImportCache();
  ImportCache(const ImportCache&) = delete;
  ImportCache& operator=(const ImportCache&) = delete;

  const ImportLimits& limits() const noexcept { return limits_; }
  /// The segment, mapped read-write where its descriptor allows, else read-only. A hit takes some 50 ns, a
  /// miss a request to the broker and the time to map. Where the bounds are reached the entry that was used
  /// longest ago and has no lease goes. Throws Error{not_found} when nobody holds the segment any more or
  /// its owner has freed it, Error{out_of_memory} when every entry is leased and the bounds are reached, or
  /// descriptors or maps run out after everything without a lease has gone, Error{broker_lost},
  /// Error{timed_out}.
  ImportLease map(broker::SegmentId id);

  /// Drops what the owners have freed. One load when there is nothing to do.
  void drop_retired();
  /// Drops everything without a lease; returns the bytes that were unmapped.
  std::uint64_t trim();
  ImportStatistics statistics() const;

 private:
  struct Entry {
    std::shared_ptr<const detail::Import> import;
    std::uint64_t last_use = 0;
  };
  using Dropped = std::vector<std::shared_ptr<const detail::Import>>;
  bool fits(std::uint64_t mappings, std::uint64_t bytes) const noexcept;
  // With the lock held; what goes is destroyed after it is given back, because that asks the broker.
  void take_retired(Dropped& dropped);
  void make_room(Dropped& dropped, std::uint64_t mappings, std::uint64_t bytes);
  [[noreturn]] void throw_full(broker::SegmentId id, std::uint64_t bytes) const;
  // Without the lock.
  std::shared_ptr<const detail::Import> import(broker::SegmentId id);
  std::shared_ptr<const detail::Import> import_or_trim(broker::SegmentId id);

  std::shared_ptr<broker::Client> client_;
  ImportLimits limits_;
  std::shared_ptr<detail::ImportCounters> counters_;
  mutable std::mutex mutex_;
  std::condition_variable loaded_;
  std::unordered_map<broker::SegmentId, Entry> entries_;
  /// Being imported by some thread; true once its owner has freed it meanwhile.
  std::unordered_map<broker::SegmentId, bool> loading_;
  std::atomic<std::uint64_t> retired_seen_;
  std::uint64_t clock_ = 0;
  ImportStatistics statistics_;
};

}  // namespace tugline::memory

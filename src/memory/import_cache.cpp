// SPDX-License-Identifier: Apache-2.0
#include "memory/import_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "base/kernel.h"
#include "base/log.h"
#include "base/settings.h"
#include "memory/allocation.h"
#include "tugline/error.h"

namespace tugline::memory {
namespace detail {

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

/// What is in place, entries and leases together. Relaxed: the bounds are looked at under the cache's lock.
struct ImportCounters {
  std::atomic<std::uint64_t> mappings{0};
  std::atomic<std::uint64_t> bytes{0};
};

class Import {
 public:
  Import(std::shared_ptr<broker::Client> client, const broker::Segment& segment,
         std::shared_ptr<ImportCounters> counters)
      : reference_(std::move(client), segment.id),
        access_(access_of(segment.descriptor.get())),
        mapping_(segment.descriptor.get(), segment.bytes, access_),
        counters_(std::move(counters)) {
    // The owner's pages are there already: this fills page tables at once instead of by a fault each. What
    // cannot be done so is done by the faults.
    if (base::kernel_at_least(5, 14)) ::madvise(mapping_.data(), mapping_.bytes(), MADV_POPULATE_READ);
    counters_->mappings.fetch_add(1, std::memory_order_relaxed);
    counters_->bytes.fetch_add(mapping_.bytes(), std::memory_order_relaxed);
  }
  ~Import() {
    counters_->mappings.fetch_sub(1, std::memory_order_relaxed);
    counters_->bytes.fetch_sub(mapping_.bytes(), std::memory_order_relaxed);
  }
  Import(const Import&) = delete;
  Import& operator=(const Import&) = delete;

  broker::SegmentId id() const noexcept { return reference_.id(); }
  std::byte* data() const noexcept { return static_cast<std::byte*>(mapping_.data()); }
  std::uint64_t bytes() const noexcept { return mapping_.bytes(); }
  base::Access access() const noexcept { return access_; }

 private:
  static base::Access access_of(int descriptor) noexcept {
    const int mode = ::fcntl(descriptor, F_GETFL);
    const int seals = ::fcntl(descriptor, F_GET_SEALS);
    const bool writable = mode >= 0 && (mode & O_ACCMODE) == O_RDWR &&
                          (seals < 0 || (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) == 0);
    return writable ? base::Access::read_write : base::Access::read_only;
  }

  SegmentReference reference_;  // given back after the pages are unmapped
  base::Access access_;
  base::Mapping mapping_;
  std::shared_ptr<ImportCounters> counters_;
};

}  // namespace detail

std::byte* ImportLease::data() const noexcept {
  return import_->data();
}
std::uint64_t ImportLease::bytes() const noexcept {
  return import_->bytes();
}
base::Access ImportLease::access() const noexcept {
  return import_->access();
}

ImportLimits ImportLimits::from_settings() {
  return {base::settings().import_limit_mappings, base::settings().import_limit_bytes};
}

ImportCache::ImportCache(std::shared_ptr<broker::Client> client, ImportLimits limits)
    : client_(std::move(client)),
      limits_(limits),
      counters_(std::make_shared<detail::ImportCounters>()),
      retired_seen_(client_->control().retired.count.load(std::memory_order_acquire)) {}

ImportCache::~ImportCache() = default;

bool ImportCache::fits(std::uint64_t mappings, std::uint64_t bytes) const noexcept {
  const auto in_bounds = [](std::uint64_t used, std::uint64_t wanted, std::uint64_t limit) {
    return limit == 0 || (used <= limit && wanted <= limit - used);
  };
  return in_bounds(counters_->mappings.load(std::memory_order_relaxed), mappings, limits_.mappings) &&
         in_bounds(counters_->bytes.load(std::memory_order_relaxed), bytes, limits_.bytes);
}

void ImportCache::take_retired(Dropped& dropped) {
  const auto& retired = client_->control().retired;
  auto seen = retired_seen_.load(std::memory_order_relaxed);
  const auto count = retired.count.load(std::memory_order_acquire);
  if (seen == count) return;
  const auto take = [&](auto at) {
    dropped.push_back(std::move(at->second.import));
    ++statistics_.retired;
    return entries_.erase(at);
  };
  for (; seen != count; ++seen) {
    const auto id = retired.ids[seen % retired.kKept].load(std::memory_order_acquire);
    if (retired.count.load(std::memory_order_relaxed) - seen >= retired.kKept) {
      // Overwritten before it was read: who knows which. What is still alive is imported again.
      for (auto at = entries_.begin(); at != entries_.end();) at = take(at);
      for (auto& [loading, is_retired] : loading_) is_retired = true;
      break;
    }
    if (const auto at = entries_.find(id); at != entries_.end()) take(at);
    if (const auto at = loading_.find(id); at != loading_.end()) at->second = true;
  }
  retired_seen_.store(count, std::memory_order_relaxed);
}

void ImportCache::make_room(Dropped& dropped, std::uint64_t mappings, std::uint64_t bytes) {
  // `dropped` still counts: what is in it goes when the lock is given back.
  std::uint64_t leaving_mappings = 0;
  std::uint64_t leaving_bytes = 0;
  for (const auto& import : dropped) {
    if (import.use_count() != 1) continue;
    ++leaving_mappings;
    leaving_bytes += import->bytes();
  }
  const auto over = [&] {
    const auto used_mappings = counters_->mappings.load(std::memory_order_relaxed) - leaving_mappings;
    const auto used_bytes = counters_->bytes.load(std::memory_order_relaxed) - leaving_bytes;
    return (limits_.mappings != 0 && used_mappings + mappings > limits_.mappings) ||
           (limits_.bytes != 0 && used_bytes + bytes > limits_.bytes);
  };
  while (over()) {
    auto oldest = entries_.end();
    for (auto at = entries_.begin(); at != entries_.end(); ++at) {
      // Leases are handed out under this lock only, so one that is not leased now stays so.
      if (at->second.import.use_count() != 1) continue;
      if (oldest == entries_.end() || at->second.last_use < oldest->second.last_use) oldest = at;
    }
    if (oldest == entries_.end()) return;
    ++leaving_mappings;
    leaving_bytes += oldest->second.import->bytes();
    ++statistics_.evictions;
    dropped.push_back(std::move(oldest->second.import));
    entries_.erase(oldest);
  }
}

void ImportCache::throw_full(broker::SegmentId id, std::uint64_t bytes) const {
  throw Error(
      ErrorCode::out_of_memory,
      fmt::format("segment {} ({} bytes) does not fit the imports: {} of {} mappings and {} of {} bytes "
                  "are in place and leased",
                  id, bytes, counters_->mappings.load(std::memory_order_relaxed), limits_.mappings,
                  counters_->bytes.load(std::memory_order_relaxed), limits_.bytes),
      "use fewer buffers at once, or raise TUGLINE_IMPORT_LIMIT_MAPPINGS and TUGLINE_IMPORT_LIMIT_BYTES",
      {.operation = "import segment", .rank = client_->rank()});
}

std::shared_ptr<const detail::Import> ImportCache::import(broker::SegmentId id) {
  auto segment = client_->import(id);
  if (!fits(1, segment.bytes)) {
    Dropped dropped;
    {
      std::lock_guard lock(mutex_);
      make_room(dropped, 1, segment.bytes);
    }
    dropped.clear();
    if (!fits(1, segment.bytes)) {
      client_->release(id);
      throw_full(id, segment.bytes);
    }
  }
  return std::make_shared<const detail::Import>(client_, segment, counters_);
}

std::shared_ptr<const detail::Import> ImportCache::import_or_trim(broker::SegmentId id) {
  try {
    return import(id);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
    const auto freed = trim();
    if (freed == 0) throw;
    base::log(
        base::LogLevel::warn,
        "segment {} could not be mapped ({}); unmapped {} bytes of imports that nobody used, and tries again",
        id, error.what_failed(), freed);
    return import(id);
  }
}

ImportLease ImportCache::map(broker::SegmentId id) {
  Dropped dropped;
  std::unique_lock lock(mutex_);
  for (;;) {
    take_retired(dropped);
    if (const auto at = entries_.find(id); at != entries_.end()) {
      at->second.last_use = ++clock_;
      ++statistics_.hits;
      ImportLease lease(at->second.import);
      lock.unlock();
      return lease;
    }
    if (!loading_.contains(id)) break;
    loaded_.wait(lock);
  }
  make_room(dropped, 1, 0);
  loading_.emplace(id, false);
  lock.unlock();
  dropped.clear();
  std::shared_ptr<const detail::Import> import;
  try {
    if (!fits(1, 0)) throw_full(id, 0);
    import = import_or_trim(id);
  } catch (...) {
    lock.lock();
    loading_.erase(id);
    lock.unlock();
    loaded_.notify_all();
    throw;
  }
  lock.lock();
  take_retired(dropped);
  // Freed while it was being mapped: this caller may have it, the next one asks the broker.
  if (!loading_.at(id)) entries_.insert_or_assign(id, Entry{import, ++clock_});
  ++statistics_.imports;
  loading_.erase(id);
  lock.unlock();
  loaded_.notify_all();
  return ImportLease(std::move(import));
}

void ImportCache::drop_retired() {
  const auto count = client_->control().retired.count.load(std::memory_order_acquire);
  if (retired_seen_.load(std::memory_order_relaxed) == count) return;
  Dropped dropped;
  std::lock_guard lock(mutex_);
  take_retired(dropped);
}

std::uint64_t ImportCache::trim() {
  Dropped dropped;
  std::uint64_t bytes = 0;
  {
    std::lock_guard lock(mutex_);
    take_retired(dropped);
    for (auto at = entries_.begin(); at != entries_.end();) {
      if (at->second.import.use_count() != 1) {
        ++at;
        continue;
      }
      ++statistics_.evictions;
      dropped.push_back(std::move(at->second.import));
      at = entries_.erase(at);
    }
    for (const auto& import : dropped)
      if (import.use_count() == 1) bytes += import->bytes();
  }
  return bytes;
}

ImportStatistics ImportCache::statistics() const {
  std::lock_guard lock(mutex_);
  auto statistics = statistics_;
  statistics.mappings = counters_->mappings.load(std::memory_order_relaxed);
  statistics.bytes = counters_->bytes.load(std::memory_order_relaxed);
  return statistics;
}

}  // namespace tugline::memory

// SPDX-License-Identifier: Apache-2.0
#include "memory/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "memory/allocation.h"
#include "memory/member_memory.h"
#include "tugline/error.h"

namespace tugline {

MemoryPool::~MemoryPool() = default;

namespace memory {
namespace {

constexpr std::size_t kPageBytes = 4096;

std::size_t round_up(std::size_t bytes, std::size_t unit) noexcept {
  return (bytes + unit - 1) / unit * unit;
}

void refuse_capture(const StreamRef& stream, const char* what) {
  if (stream.is_capturing())
    throw Error(ErrorCode::invalid_usage,
                fmt::format("a pool's memory is {} while its stream is capturing", what),
                "allocate before begin_capture() and free after the graph's last launch");
}

}  // namespace

HostPool::HostPool(std::shared_ptr<broker::Client> client)
    : client_(std::move(client)), memory_(MemberMemory::of(client_)) {}

std::shared_ptr<HostPool> HostPool::make(std::shared_ptr<broker::Client> client) {
  auto pool = std::make_shared<HostPool>(std::move(client));
  pool->memory_->trims(pool);
  return pool;
}

void HostPool::settle() {
  for (auto& slab : slabs_) {
    for (auto at = slab->blocks.begin(); at != slab->blocks.end(); ++at) {
      if (at->second.used || !at->second.event || !at->second.event->is_done()) continue;
      at->second.event.reset();
      at->second.stream.reset();
      at->second.order = 0;
    }
    for (auto at = slab->blocks.begin(); at != slab->blocks.end(); ++at) join_neighbours(*slab, at);
  }
}

void HostPool::join_neighbours(Slab& slab, Blocks::iterator block) {
  if (block->second.used) return;
  for (auto next = std::next(block); next != slab.blocks.end(); next = std::next(block)) {
    if (next->second.used || next->second.stream != block->second.stream) return;
    // Both were freed on one stream: when the later event is done, so is the earlier.
    if (next->second.order > block->second.order) {
      block->second.event = std::move(next->second.event);
      block->second.order = next->second.order;
    }
    block->second.bytes += next->second.bytes;
    slab.blocks.erase(next);
  }
}

std::optional<HostPool::Place> HostPool::best_fit(std::size_t bytes, const StreamRef& stream, bool may_wait) {
  std::optional<Place> best;
  for (auto& slab : slabs_)
    for (auto at = slab->blocks.begin(); at != slab->blocks.end(); ++at) {
      const auto& block = at->second;
      if (block.used || block.bytes < bytes) continue;
      if (block.event && block.stream != stream && !may_wait) continue;
      if (!best || block.bytes < best->block->second.bytes) best = Place{slab.get(), at};
    }
  return best;
}

void HostPool::count_use(std::size_t bytes) {
  ++statistics_.allocations;
  statistics_.used_bytes += bytes;
  statistics_.used_high_bytes = std::max(statistics_.used_high_bytes, statistics_.used_bytes);
}

void* HostPool::take(Place place, std::size_t bytes, const StreamRef& stream) {
  auto& block = place.block->second;
  if (block.event && block.stream != stream) {
    stream.wait(*block.event);
    ++statistics_.stream_waits;
  }
  if (block.bytes > bytes) {
    Block rest = block;
    rest.bytes -= bytes;
    place.slab->blocks.emplace(place.block->first + bytes, std::move(rest));
  }
  block = Block{bytes, true, std::nullopt, nullptr, 0};
  ++statistics_.reuses;
  count_use(bytes);
  return static_cast<char*>(place.slab->memory->data()) + place.block->first;
}

void* HostPool::add_slab(std::shared_ptr<SharedAllocation> memory, std::size_t bytes) {
  auto slab = std::make_unique<Slab>();
  const auto size = memory->bytes();
  slab->memory = std::move(memory);
  slab->blocks.emplace(0, Block{bytes, true, std::nullopt, nullptr, 0});
  if (size > bytes) slab->blocks.emplace(bytes, Block{size - bytes, false, std::nullopt, nullptr, 0});
  void* address = slab->memory->data();
  slabs_.push_back(std::move(slab));
  ++statistics_.growths;
  statistics_.reserved_bytes += size;
  statistics_.reserved_high_bytes = std::max(statistics_.reserved_high_bytes, statistics_.reserved_bytes);
  count_use(bytes);
  return address;
}

void* HostPool::allocate(std::size_t asked, StreamRef stream) {
  client_->require_member("pool allocate");
  if (asked == 0)
    throw Error(ErrorCode::invalid_argument, "0 bytes of a pool were asked", "ask for at least one element",
                {.operation = "pool allocate", .rank = client_->rank()});
  refuse_capture(stream, "allocated");
  // What does not fit an address space is refused below, with the bytes as they were asked.
  const auto bytes = std::max(asked, round_up(asked, kAlignment));
  {
    std::lock_guard lock(mutex_);
    settle();
    if (const auto place = best_fit(bytes, stream, false)) return take(*place, bytes, stream);
  }
  // Without the lock: it asks the broker, and may trim this pool.
  const auto exact = std::max(bytes, round_up(bytes, kPageBytes));
  const auto grow = [&](std::size_t slab_bytes) {
    auto memory = memory::allocate(client_, slab_bytes);
    std::lock_guard lock(mutex_);
    return add_slab(std::move(memory), bytes);
  };
  try {
    return grow(std::max(exact, kSlabBytes));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
    if (exact < kSlabBytes) {
      base::log(base::LogLevel::warn, "a pool cannot grow by {} bytes, asks for {} instead ({})", kSlabBytes,
                exact, error.what_failed());
      try {
        return grow(exact);
      } catch (const Error& second) {
        if (second.code() != ErrorCode::out_of_memory) throw;
      }
    }
    if (void* address = wait_for_another(bytes, stream)) return address;
    const auto now = statistics();
    throw Error(ErrorCode::out_of_memory,
                fmt::format("{} bytes of a pool were asked, {} of its {} are in use; it cannot grow: {}",
                            asked, now.used_bytes, now.reserved_bytes, error.what_failed()),
                error.what_to_do(), {.operation = "pool allocate", .rank = client_->rank()});
  }
}

void* HostPool::wait_for_another(std::size_t bytes, const StreamRef& stream) {
  std::lock_guard lock(mutex_);
  settle();
  const auto place = best_fit(bytes, stream, true);
  if (!place) return nullptr;
  if (place->block->second.event)
    base::log(base::LogLevel::warn, "memory is short: a stream waits for {} bytes that another one has freed",
              bytes);
  return take(*place, bytes, stream);
}

void HostPool::deallocate(void* address, StreamRef stream) {
  refuse_capture(stream, "freed");
  std::lock_guard lock(mutex_);
  for (auto& slab : slabs_) {
    const auto begin = reinterpret_cast<std::uintptr_t>(slab->memory->data());
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (at < begin || at - begin >= slab->memory->bytes()) continue;
    const auto block = slab->blocks.find(at - begin);
    if (block == slab->blocks.end() || !block->second.used) break;
    statistics_.used_bytes -= block->second.bytes;
    block->second.used = false;
    if (stream.is_done()) return;
    // With the lock held, so that the order of the events is that of the numbers.
    block->second.event = std::make_shared<Event>(stream.device());
    stream.record(*block->second.event);
    block->second.stream = stream;
    block->second.order = ++frees_;
    return;
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} is no memory of this pool that is in use", address),
              "free each allocation once, by the address that allocate() gave",
              {.operation = "pool deallocate", .rank = client_->rank()});
}

bool HostPool::unused(const Slab& slab) {
  return std::all_of(slab.blocks.begin(), slab.blocks.end(),
                     [](const auto& entry) { return !entry.second.used && !entry.second.event; });
}

std::uint64_t HostPool::trim_to(std::uint64_t bytes) {
  std::vector<std::unique_ptr<Slab>> dropped;  // after the lock: that asks the broker
  std::uint64_t given_back = 0;
  std::lock_guard lock(mutex_);
  settle();
  for (auto at = slabs_.begin(); at != slabs_.end() && statistics_.reserved_bytes > bytes;) {
    if (!unused(**at)) {
      ++at;
      continue;
    }
    const auto size = (*at)->memory->bytes();
    statistics_.reserved_bytes -= size;
    given_back += size;
    dropped.push_back(std::move(*at));
    at = slabs_.erase(at);
  }
  return given_back;
}

PoolStatistics HostPool::statistics() const {
  std::lock_guard lock(mutex_);
  return statistics_;
}

}  // namespace memory
}  // namespace tugline

// SPDX-License-Identifier: Apache-2.0
#include "memory/window.h"

#include <fmt/format.h>

#include <algorithm>

#include "tugline/error.h"

namespace tugline::memory {
namespace {

constexpr std::size_t kFirstCapacity = 32;
constexpr int kAttempts = 64;

}  // namespace

Windows::Range Windows::Entry::load() const noexcept {
  return {begin.load(std::memory_order_acquire), bytes.load(std::memory_order_acquire),
          segment.load(std::memory_order_acquire), offset.load(std::memory_order_acquire)};
}

void Windows::Entry::store(const Range& range) noexcept {
  begin.store(range.begin, std::memory_order_release);
  bytes.store(range.bytes, std::memory_order_release);
  segment.store(range.segment, std::memory_order_release);
  offset.store(range.offset, std::memory_order_release);
}

std::size_t Windows::Table::after(std::uintptr_t address) const noexcept {
  std::size_t low = 0;
  std::size_t high = std::min(count.load(std::memory_order_acquire), entries.size());
  while (low < high) {
    const auto middle = low + (high - low) / 2;
    if (entries[middle].begin.load(std::memory_order_acquire) <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

Windows::Windows() {
  tables_.push_back(std::make_unique<Table>(kFirstCapacity));
  table_.store(tables_.back().get(), std::memory_order_release);
}

std::optional<Window> Windows::search(const Table& table, std::uintptr_t address,
                                      std::size_t bytes) noexcept {
  const auto after = table.after(address);
  if (after == 0) return std::nullopt;
  const auto range = table.entries[after - 1].load();
  const auto distance = address - range.begin;
  if (distance >= range.bytes || bytes > range.bytes - distance) return std::nullopt;
  return Window{range.segment, range.offset + distance, range.bytes - distance};
}

std::optional<Window> Windows::find(const void* pointer, std::size_t bytes) const noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto before = version_.load(std::memory_order_acquire);
    if ((before & 1) != 0) continue;
    const auto window = search(*table_.load(std::memory_order_acquire), address, bytes);
    if (version_.load(std::memory_order_relaxed) == before) return window;
  }
  std::lock_guard lock(writing_);
  return search(*table_.load(std::memory_order_relaxed), address, bytes);
}

Windows::Table& Windows::with_room() {
  auto& table = *tables_.back();
  const auto count = table.count.load(std::memory_order_relaxed);
  if (count < table.entries.size()) return table;
  auto larger = std::make_unique<Table>(2 * table.entries.size());
  for (std::size_t i = 0; i < count; ++i) larger->entries[i].store(table.entries[i].load());
  larger->count.store(count, std::memory_order_relaxed);
  tables_.push_back(std::move(larger));
  // What it holds is what the old one holds: readers of either are right.
  table_.store(tables_.back().get(), std::memory_order_release);
  return *tables_.back();
}

void Windows::add(const void* base, std::uint64_t bytes, broker::SegmentId segment, std::uint64_t offset) {
  const Range added{reinterpret_cast<std::uintptr_t>(base), bytes, segment, offset};
  std::lock_guard lock(writing_);
  auto& table = with_room();
  const auto count = table.count.load(std::memory_order_relaxed);
  const auto at = table.after(added.begin);
  const auto refuse_overlap = [&](const Range& there) {
    if (there.begin + there.bytes <= added.begin || added.begin + added.bytes <= there.begin) return;
    throw Error(ErrorCode::already_exists,
                fmt::format("{} bytes at {:#x} overlap the {} bytes at {:#x} that are segment {}'s", bytes,
                            added.begin, there.bytes, there.begin, there.segment),
                "register a range once, and end its registration before its address is used again",
                {.operation = "register memory"});
  };
  if (at > 0) refuse_overlap(table.entries[at - 1].load());
  if (at < count) refuse_overlap(table.entries[at].load());
  const auto version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_relaxed);
  for (auto i = count; i > at; --i) table.entries[i].store(table.entries[i - 1].load());
  table.entries[at].store(added);
  table.count.store(count + 1, std::memory_order_release);
  version_.store(version + 2, std::memory_order_release);
}

void Windows::remove(const void* base) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(base);
  std::lock_guard lock(writing_);
  auto& table = *tables_.back();
  const auto count = table.count.load(std::memory_order_relaxed);
  const auto after = table.after(begin);
  if (after == 0 || table.entries[after - 1].begin.load(std::memory_order_relaxed) != begin) return;
  const auto version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_relaxed);
  for (auto i = after; i < count; ++i) table.entries[i - 1].store(table.entries[i].load());
  table.count.store(count - 1, std::memory_order_release);
  version_.store(version + 2, std::memory_order_release);
}

std::size_t Windows::count() const noexcept {
  std::lock_guard lock(writing_);
  return tables_.back()->count.load(std::memory_order_relaxed);
}

}  // namespace tugline::memory

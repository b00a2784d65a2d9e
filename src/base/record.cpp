// SPDX-License-Identifier: Apache-2.0
// The sequence lock of H. Boehm, "Can seqlocks get along with programming language memory models?" (MSPC
// 2012), in the form without fences: the words are written with release and read with acquire, so a reader
// that saw one word of a newer record also sees the newer stamp when it looks again.
#include "base/record.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "tugline/error.h"

namespace tugline::base {

RecordWriter::RecordWriter(void* memory, std::size_t bytes) : ring_(static_cast<RecordRing*>(memory)) {
  if (bytes < record_ring_bytes(1) || reinterpret_cast<std::uintptr_t>(memory) % alignof(RecordRing) != 0)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a record ring needs {} bytes at a multiple of {}, but has {} at {}",
                            record_ring_bytes(1), alignof(RecordRing), bytes, memory),
                "give it aligned memory of record_ring_bytes(capacity)", {.operation = "record ring"});
  const std::uint64_t capacity = std::bit_floor((bytes - sizeof(RecordRing)) / sizeof(RecordRing::Slot));
  mask_ = capacity - 1;
  const bool goes_on = ring_->magic.load(std::memory_order_acquire) == RecordRing::kMagic &&
                       ring_->version == RecordRing::kVersion && ring_->capacity == capacity;
  if (!goes_on) {
    ring_->magic.store(0, std::memory_order_relaxed);
    ring_->written.store(0, std::memory_order_relaxed);
    for (std::uint64_t slot = 0; slot < capacity; ++slot)
      ring_->slots()[slot].stamp.store(0, std::memory_order_relaxed);
    ring_->version = RecordRing::kVersion;
    ring_->capacity = capacity;
    ring_->magic.store(RecordRing::kMagic, std::memory_order_release);
  }
  next_ = ring_->written.load(std::memory_order_acquire);
}

void RecordWriter::write(const Record& record) noexcept {
  const auto words = std::bit_cast<std::array<std::uint64_t, kRecordWords>>(record);
  auto& slot = ring_->slots()[next_ & mask_];
  slot.stamp.store(2 * next_ + 1, std::memory_order_relaxed);
  for (std::size_t i = 0; i < kRecordWords; ++i) slot.words[i].store(words[i], std::memory_order_release);
  slot.stamp.store(2 * next_ + 2, std::memory_order_release);
  ++next_;
  ring_->written.store(next_, std::memory_order_release);
}

RecordReader::RecordReader(const void* memory, std::size_t bytes)
    : ring_(static_cast<const RecordRing*>(memory)), capacity_(0) {
  if (bytes >= sizeof(RecordRing) && ring_->magic.load(std::memory_order_acquire) == RecordRing::kMagic &&
      ring_->version == RecordRing::kVersion)
    capacity_ = ring_->capacity;
  const auto fitting =
      bytes < sizeof(RecordRing) ? 0 : (bytes - sizeof(RecordRing)) / sizeof(RecordRing::Slot);
  if (!std::has_single_bit(capacity_) || capacity_ > fitting)
    throw Error(ErrorCode::protocol,
                fmt::format("no record ring of version {} in {} bytes of memory (capacity {}, fitting {})",
                            RecordRing::kVersion, bytes, capacity_, fitting),
                "read rings of the same build only", {.operation = "record ring"});
}

std::optional<Record> RecordReader::read(std::uint64_t index) const noexcept {
  const auto& slot = ring_->slots()[index & (capacity_ - 1)];
  const auto whole = 2 * index + 2;
  if (slot.stamp.load(std::memory_order_acquire) != whole) return std::nullopt;
  std::array<std::uint64_t, kRecordWords> words{};
  for (std::size_t i = 0; i < kRecordWords; ++i) words[i] = slot.words[i].load(std::memory_order_acquire);
  if (slot.stamp.load(std::memory_order_relaxed) != whole) return std::nullopt;
  return std::bit_cast<Record>(words);
}

std::vector<Record> RecordReader::last(std::size_t count) const {
  const auto end = written();
  const auto wanted = std::min<std::uint64_t>({count, capacity_, end});
  std::vector<Record> records;
  records.reserve(wanted);
  for (auto index = end - wanted; index < end; ++index)
    if (const auto record = read(index)) records.push_back(*record);
  return records;
}

}  // namespace tugline::base

// SPDX-License-Identifier: Apache-2.0
// Handles of a backend. A handle carries its kind, its slot and the slot's generation, so that 0, a
// handle of another kind and one that was destroyed are errors with a name instead of wild pointers.
#pragma once

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tugline/error.h"

namespace tugline::device {

/// Thread-safe. get() takes no lock. Using a handle while another thread destroys it is the caller's error.
template <class Object>
class HandleTable {
 public:
  HandleTable(const char* name, std::uint64_t tag) noexcept : name_(name), tag_(tag) {}
  ~HandleTable() {
    for (auto& chunk : chunks_) delete chunk.load(std::memory_order_relaxed);
  }
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;

  /// Throws Error{out_of_memory} when all slots are taken.
  std::uintptr_t add(std::shared_ptr<Object> object) {
    std::lock_guard lock(mutex_);
    std::uint64_t index = 0;
    if (!free_.empty()) {
      index = free_.back();
      free_.pop_back();
    } else {
      index = used_;
      if (index == kChunks * kSlots) {
        throw Error(ErrorCode::out_of_memory,
                    fmt::format("{} {} handles exist, no more are possible", index, name_),
                    "destroy those that are not used any more");
      }
      std::atomic<Chunk*>& chunk = chunks_[index / kSlots];
      if (chunk.load(std::memory_order_relaxed) == nullptr) chunk.store(new Chunk, std::memory_order_release);
      ++used_;
    }
    Slot& slot = (*chunks_[index / kSlots].load(std::memory_order_relaxed))[index % kSlots];
    const std::uint32_t generation = ++slot.last_generation;
    slot.object = std::move(object);
    slot.generation.store(generation, std::memory_order_release);  // pairs with find()
    return static_cast<std::uintptr_t>(std::uint64_t{generation} << kGenerationShift | tag_ << kIndexBits |
                                       index);
  }

  /// Throws Error{invalid_argument} for a handle that is not one of this table, or was destroyed.
  Object& get(std::uintptr_t handle) const { return *shared(handle); }
  const std::shared_ptr<Object>& shared(std::uintptr_t handle) const {
    if (Slot* slot = find(handle)) return slot->object;
    refuse(handle);
  }

  /// Takes the object out; null for an invalid handle.
  std::shared_ptr<Object> remove(std::uintptr_t handle) noexcept {
    std::lock_guard lock(mutex_);
    Slot* slot = find(handle);
    if (slot == nullptr) return nullptr;
    slot->generation.store(0, std::memory_order_relaxed);
    // A slot whose generations are used up is retired. Without memory for the list it is retired as well.
    if (slot->last_generation != kLastGeneration) {
      try {
        free_.push_back(handle & (kChunks * kSlots - 1));
      } catch (...) {
      }
    }
    return std::exchange(slot->object, nullptr);
  }

 private:
  static constexpr std::uint64_t kSlots = 1024;
  static constexpr std::uint64_t kChunks = 1024;
  static constexpr int kIndexBits = 20;
  static constexpr int kGenerationShift = 24;
  static constexpr std::uint32_t kLastGeneration = 0xffffffff;
  struct Slot {
    std::atomic<std::uint32_t> generation = 0;  // 0: free
    std::uint32_t last_generation = 0;
    std::shared_ptr<Object> object;
  };
  using Chunk = std::array<Slot, kSlots>;

  Slot* find(std::uintptr_t handle) const noexcept {
    const std::uint64_t index = handle & (kChunks * kSlots - 1);
    const auto generation = static_cast<std::uint32_t>(handle >> kGenerationShift);
    if (((handle >> kIndexBits) & 0xf) != tag_ || generation == 0) return nullptr;
    Chunk* chunk = chunks_[index / kSlots].load(std::memory_order_acquire);
    if (chunk == nullptr) return nullptr;
    Slot& slot = (*chunk)[index % kSlots];
    return slot.generation.load(std::memory_order_acquire) == generation ? &slot : nullptr;
  }
  [[noreturn]] void refuse(std::uintptr_t handle) const {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("handle {:#x} is no {} of this backend, or that {} was destroyed", handle, name_, name_),
        fmt::format("keep the owner of the {} alive while it is used, and do not use it after a move",
                    name_));
  }

  const char* const name_;
  const std::uint64_t tag_;
  std::mutex mutex_;
  std::array<std::atomic<Chunk*>, kChunks> chunks_ = {};
  std::vector<std::uint64_t> free_;
  std::uint64_t used_ = 0;
};

}  // namespace tugline::device

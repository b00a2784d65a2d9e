// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/pinned.h"

#include <mutex>
#include <new>
#include <vector>

namespace tugline::device::cuda {
namespace {

constexpr std::size_t kCellsAtOnce = 1024;

std::atomic<std::size_t> pinned_bytes = 0;

void* pin(std::size_t bytes) {
  void* memory = nullptr;
  check(driver().cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
        "allocation of pinned host memory");
  pinned_bytes += bytes;
  return memory;
}

// Never destroyed, never unpinned: work of the device may refer to it until the process ends.
template <class Item>
class Pool {
 public:
  /// `make` adds at least one to the list it is given.
  template <class Make>
  std::shared_ptr<Item> take(Make make) {
    Item* item = nullptr;
    {
      std::lock_guard lock(mutex_);
      if (free_.empty()) make(free_);
      free_.reserve(free_.size() + 1);
      item = free_.back();
      free_.pop_back();
      ++taken_;
      free_.reserve(free_.size() + taken_);  // so that giving back needs no memory
    }
    return std::shared_ptr<Item>(item, [this](Item* back) { give_back(back); });
  }

  std::size_t taken() {
    std::lock_guard lock(mutex_);
    return taken_;
  }

 private:
  void give_back(Item* item) noexcept {
    std::lock_guard lock(mutex_);
    free_.push_back(item);
    --taken_;
  }

  std::mutex mutex_;
  std::vector<Item*> free_;
  std::size_t taken_ = 0;
};

Pool<Cell>& cells() {
  static auto* pool = new Pool<Cell>;
  return *pool;
}
Pool<std::byte>& staging_buffers() {
  static auto* pool = new Pool<std::byte>;
  return *pool;
}

}  // namespace

std::shared_ptr<Cell> make_cell() {
  auto cell = cells().take([](std::vector<Cell*>& free) {
    auto* cells = static_cast<Cell*>(pin(kCellsAtOnce * sizeof(Cell)));
    free.reserve(free.size() + kCellsAtOnce);
    for (std::size_t i = 0; i < kCellsAtOnce; ++i) free.push_back(new (cells + i) Cell);
  });
  cell->word.store(0, std::memory_order_relaxed);
  return cell;
}

std::shared_ptr<std::byte> make_staging() {
  return staging_buffers().take([](std::vector<std::byte*>& free) {
    free.reserve(free.size() + 1);
    free.push_back(static_cast<std::byte*>(pin(kStagingBytes)));
  });
}

PinnedUse pinned_use() {
  return {.cells = cells().taken(), .staging = staging_buffers().taken(), .pinned_bytes = pinned_bytes};
}

}  // namespace tugline::device::cuda

// SPDX-License-Identifier: Apache-2.0
#include "soak/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace tugline::soak {
namespace {

constexpr std::size_t kKept = 8;
constexpr std::size_t kPage = 4096;

}  // namespace

void Memory::Unmap::operator()(std::byte* memory) const noexcept {
  ::munmap(memory, bytes);
}

Memory::Memory(MemoryKind kind, std::size_t bytes, Job& job, StreamRef stream) : bytes_(bytes) {
  switch (kind) {
    case MemoryKind::plain:
      owner_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      data_ = std::get<0>(owner_).get();
      break;
    case MemoryKind::library: {
      auto buffer = job.allocate<std::uint8_t>(bytes);
      data_ = reinterpret_cast<std::byte*>(buffer.data());
      owner_ = std::move(buffer);
      break;
    }
    case MemoryKind::pool: {
      auto buffer = job.pool().allocate_buffer<std::uint8_t>(bytes, stream);
      data_ = reinterpret_cast<std::byte*>(buffer.data());
      owner_ = std::move(buffer);
      break;
    }
    case MemoryKind::registered: {
      bytes_ = (bytes + kPage - 1) / kPage * kPage;
      Registered registered;
      void* pages = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (pages == MAP_FAILED) throw std::bad_alloc();
      data_ = static_cast<std::byte*>(pages);
      registered.memory = {data_, Unmap{bytes_}};
      registered.registration = job.register_memory(data_, bytes_);
      owner_ = std::move(registered);
      break;
    }
  }
}

std::shared_ptr<Memory> Shelf::take(Sequence& random, std::size_t bytes) {
  // Private memory as often as all others together.
  const auto kind = static_cast<MemoryKind>(random.below(2) == 0 ? 0 : random.below(kMemoryKinds));
  const bool again = random.below(3) != 0;
  const auto is_free = [](const auto& memory) { return memory.use_count() == 1; };
  if (again) {
    for (const auto& memory : kept_)
      if (is_free(memory) && memory->kind() == kind && memory->bytes() >= bytes) return memory;
  }
  if (kept_.size() >= kKept) {
    const auto oldest = std::find_if(kept_.begin(), kept_.end(), is_free);
    if (oldest != kept_.end()) kept_.erase(oldest);
  }
  kept_.push_back(std::make_shared<Memory>(kind, bytes, job_, stream_));
  return kept_.back();
}

}  // namespace tugline::soak

// SPDX-License-Identifier: Apache-2.0
// A member's pool of shared memory in stream order.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "broker/client.h"
#include "memory/member_memory.h"
#include "tugline/buffer.h"
#include "tugline/pool.h"

namespace tugline::memory {

/// Slabs (segments) cut into blocks. Best fit; neighbours that are free for the same users become one. Free
/// blocks that wait for another stream carry the event that says when they are anybody's.
class HostPool final : public MemoryPool, public std::enable_shared_from_this<HostPool> {
 public:
  static constexpr std::size_t kAlignment = 256;
  static constexpr std::size_t kSlabBytes = 8 << 20;

  static std::shared_ptr<HostPool> make(std::shared_ptr<broker::Client> client);
  explicit HostPool(std::shared_ptr<broker::Client> client);

  void* allocate(std::size_t bytes, StreamRef stream) override;
  void deallocate(void* address, StreamRef stream) override;
  std::uint64_t trim_to(std::uint64_t bytes) override;
  PoolStatistics statistics() const override;

 private:
  struct Block {
    std::size_t bytes = 0;
    bool used = false;
    /// Of a free block: the stream it was freed on, and the event behind its work there. Without an event it
    /// is anybody's.
    std::optional<StreamRef> stream;
    std::shared_ptr<Event> event;
    std::uint64_t order = 0;  ///< of the event among all
  };
  struct Slab {
    std::shared_ptr<SharedAllocation> memory;
    std::map<std::size_t, Block> blocks;  ///< by offset; they cover the slab
  };
  using Blocks = std::map<std::size_t, Block>;
  struct Place {
    Slab* slab;
    Blocks::iterator block;
  };
  std::shared_ptr<MemoryPool> shared() override { return shared_from_this(); }

  // All with the lock held.
  void settle();
  std::optional<Place> best_fit(std::size_t bytes, const StreamRef& stream, bool may_wait);
  void* take(Place place, std::size_t bytes, const StreamRef& stream);
  void* add_slab(std::shared_ptr<SharedAllocation> memory, std::size_t bytes);
  static bool unused(const Slab& slab);
  static void join_neighbours(Slab& slab, Blocks::iterator block);
  void count_use(std::size_t bytes);

  void* wait_for_another(std::size_t bytes, const StreamRef& stream);

  std::shared_ptr<broker::Client> client_;
  std::shared_ptr<MemberMemory> memory_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Slab>> slabs_;
  std::uint64_t frees_ = 0;
  PoolStatistics statistics_;
};

}  // namespace tugline::memory

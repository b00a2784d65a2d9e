// SPDX-License-Identifier: Apache-2.0
#include "memory/member_memory.h"

#include <unordered_map>
#include <utility>

#include "base/log.h"

namespace tugline::memory {

std::shared_ptr<MemberMemory> MemberMemory::of(const std::shared_ptr<broker::Client>& client) {
  static std::mutex mutex;
  // A living MemberMemory keeps its client, so an address that is used again finds an expired entry.
  static std::unordered_map<const broker::Client*, std::weak_ptr<MemberMemory>> all;
  std::lock_guard lock(mutex);
  auto& entry = all[client.get()];
  if (auto memory = entry.lock()) return memory;
  std::erase_if(all,
                [&](const auto& other) { return other.first != client.get() && other.second.expired(); });
  auto memory = std::make_shared<MemberMemory>(client);
  all[client.get()] = memory;
  return memory;
}

void MemberMemory::trims(std::weak_ptr<MemoryPool> pool) {
  std::lock_guard lock(mutex_);
  std::erase_if(pools_, [](const auto& one) { return one.expired(); });
  pools_.push_back(std::move(pool));
}

std::uint64_t MemberMemory::relieve() {
  std::vector<std::shared_ptr<MemoryPool>> pools;
  {
    std::lock_guard lock(mutex_);
    for (const auto& one : pools_)
      if (auto pool = one.lock()) pools.push_back(std::move(pool));
  }
  std::uint64_t from_pools = 0;
  for (const auto& pool : pools) from_pools += pool->trim_to(0);
  if (from_pools != 0)
    base::log(base::LogLevel::warn, "memory is short: pools gave back {} unused bytes", from_pools);
  const auto from_imports = imports_.trim();
  if (from_imports != 0)
    base::log(base::LogLevel::warn, "memory is short: unmapped {} bytes of other members that nobody used",
              from_imports);
  return from_pools + from_imports;
}

}  // namespace tugline::memory

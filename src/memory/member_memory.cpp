// SPDX-License-Identifier: Apache-2.0
#include "memory/member_memory.h"

#include <mutex>
#include <unordered_map>

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

}  // namespace tugline::memory

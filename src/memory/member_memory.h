// SPDX-License-Identifier: Apache-2.0
// What one member has of shared memory in this process: the ranges that others can map, and what it has
// mapped of others.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "broker/client.h"
#include "memory/import_cache.h"
#include "memory/window.h"
#include "tugline/pool.h"

namespace tugline::memory {

/// One per member: ranks that are threads of one process have one each, because references at the broker are
/// a member's. Thread-safe.
class MemberMemory {
 public:
  /// The member's own, made at the first call and shared by all who ask while somebody holds it.
  static std::shared_ptr<MemberMemory> of(const std::shared_ptr<broker::Client>& client);

  explicit MemberMemory(std::shared_ptr<broker::Client> client)
      : client_(std::move(client)), imports_(client_) {}

  broker::Client& client() const noexcept { return *client_; }
  /// Lets relieve() trim this pool for as long as it lives.
  void trims(std::weak_ptr<MemoryPool> pool);
  /// Memory is short: gives back what nobody uses, first of the pools, then of the imports, and reports each.
  /// Returns the bytes given back.
  std::uint64_t relieve();

  Windows& windows() noexcept { return windows_; }
  ImportCache& imports() noexcept { return imports_; }

 private:
  std::shared_ptr<broker::Client> client_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<MemoryPool>> pools_;
  Windows windows_;
  ImportCache imports_;
};

}  // namespace tugline::memory

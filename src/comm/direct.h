// SPDX-License-Identifier: Apache-2.0
// Direct plans: which of a rank's buffers the others could reach, how ranks tell each other, and the
// reaching.
//
// Every rank publishes with its descriptor whether all that a direct plan touches of it lies in memory that
// others can map (an offer), and where. A rank that offers waits for everybody's descriptor before its first
// step; when all offer, all run the direct plan, else all run the plan they would have run anyway. A rank
// that does not offer need not wait, for it knows the answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "comm/call.h"
#include "comm/epoch.h"
#include "core/plan/plan.h"
#include "memory/import_cache.h"
#include "memory/window.h"
#include "tugline/error.h"

namespace tugline::comm {

/// Calls of fewer bytes (as Call::bytes counts) do not look: they are through before the others are asked.
inline constexpr std::uint64_t kDirectFromBytes = 4 << 10;

/// Where others can reach this rank's buffers; segment 0 where they need not.
struct Offer {
  memory::Window send;
  memory::Window recv;
};

/// The offer of `rank`; none when something that others would touch lies in memory of this process alone.
std::optional<Offer> make_offer(const Call& call, std::uint32_t rank, std::uint32_t ranks,
                                const memory::Windows& windows) noexcept;

/// What a run needs to go direct when everybody can.
struct DirectOption {
  std::optional<Offer> offer;
  std::shared_ptr<const core::Plan> plan;  ///< the direct one; null without an offer
  memory::ImportCache* imports = nullptr;
};

/// The buffers of all ranks as this rank sees them. Keeps them mapped for its lifetime.
class PeerBuffers {
 public:
  /// Maps what the others published for operation `sequence`; all have offered. Throws as ImportCache::map,
  /// and Error{permission_denied} for an output that can only be read here.
  PeerBuffers(const Epoch& epoch, std::uint64_t sequence, const Call& call, memory::ImportCache& imports);

  std::byte* send(std::uint32_t rank) const noexcept { return buffers_[rank].send; }
  std::byte* recv(std::uint32_t rank) const noexcept { return buffers_[rank].recv; }

 private:
  struct Buffers {
    std::byte* send = nullptr;
    std::byte* recv = nullptr;
  };
  std::byte* reach(memory::ImportCache& imports, std::uint64_t segment, std::uint64_t offset,
                   base::Access needed);

  std::vector<Buffers> buffers_;
  std::vector<memory::ImportLease> leases_;
};

}  // namespace tugline::comm

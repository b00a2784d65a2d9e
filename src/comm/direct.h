// SPDX-License-Identifier: Apache-2.0
// Direct plans: which of a rank's buffers the others could reach, how ranks tell each other, and the
// reaching.
//
// Every rank publishes with its descriptor whether all that a direct plan touches of it lies in memory that
// others can map, or in the process that all of them are threads of (an offer), and where. A rank that offers
// waits for everybody's descriptor before its first step; when all offer, all run the direct plan, else all
// run the plan they would have run anyway. A rank that does not offer need not wait, for it knows the answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/call.h"
#include "comm/epoch.h"
#include "comm/visit.h"
#include "core/plan/plan.h"
#include "memory/import_cache.h"
#include "memory/window.h"
#include "tugline/error.h"

namespace tugline::comm {

/// Calls of fewer bytes (as Call::bytes counts) do not look: they are through before the others are asked.
inline constexpr std::uint64_t kDirectFromBytes = 4 << 10;

/// Where others can reach this rank's buffers; segment 0 where they need not.
struct Offer {
  enum class Reach : std::uint64_t {
    none,
    threads,   ///< by address, for threads of this process only
    everyone,  ///< by segment, for these too
  };
  Reach reach = Reach::none;
  memory::Window send;
  memory::Window recv;
};

/// The offer of `rank`, by segment where that can be. `one_process`: all ranks are threads of this one.
Offer make_offer(const Call& call, std::uint32_t rank, std::uint32_t ranks, const memory::Windows& windows,
                 bool one_process) noexcept;

/// Says for operation `sequence` what this rank offers, before its descriptor.
/// `limits`: what this rank may have mapped at once.
void publish_offer(const Epoch& epoch, std::uint64_t sequence, const Call& call, const Offer& offer,
                   std::uint64_t process, const memory::ImportLimits& limits) noexcept;
/// How all ranks reach each other in operation `sequence`, of which all have published: the same answer
/// everywhere. By address rather than by segment: nothing has to be mapped. By segment only where the others'
/// segments are within each rank's limits.
Offer::Reach common_reach(const Epoch& epoch, std::uint64_t sequence) noexcept;

/// What a run needs to go direct when everybody can.
struct DirectOption {
  Offer offer;
  std::shared_ptr<const core::Plan> plan;  ///< the direct one; null without an offer, or if `later` gives it
  /// The direct plan of a call whose blocks lie in others' buffers as these have published it.
  std::function<std::shared_ptr<const core::Plan>(const Call& call, std::uint64_t sequence)> later = {};
  memory::ImportCache* imports = nullptr;  ///< with an offer
  memory::ImportLimits limits;             ///< of `imports`
  std::uint64_t process = 0;               ///< this one's identity
  /// False once the process of that rank of the epoch can store nothing more.
  std::function<bool(std::uint32_t)> may_store;

  bool offers() const noexcept { return offer.reach != Offer::Reach::none; }
};

/// The buffers of all ranks as this rank sees them; null where its plan touches nothing. Keeps them mapped
/// for its lifetime.
class PeerBuffers {
 public:
  /// Takes, or maps, what `plan` lets this rank touch of what the others published for operation `sequence`;
  /// `reach` is what all have offered. Throws as ImportCache::map, and Error{permission_denied} for an output
  /// that can only be read here.
  PeerBuffers(const Epoch& epoch, std::uint64_t sequence, const Call& call, Offer::Reach reach,
              const core::Plan& plan, memory::ImportCache& imports);

  std::byte* send(std::uint32_t rank) const noexcept { return buffers_[rank].send; }
  std::byte* recv(std::uint32_t rank) const noexcept { return buffers_[rank].recv; }
  std::span<const Buffers> all() const noexcept { return buffers_; }

 private:
  std::byte* reach(memory::ImportCache& imports, std::uint64_t segment, std::uint64_t offset,
                   base::Access needed);

  std::vector<Buffers> buffers_;
  std::vector<memory::ImportLease> leases_;
};

}  // namespace tugline::comm

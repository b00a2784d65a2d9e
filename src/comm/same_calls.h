// SPDX-License-Identifier: Apache-2.0
// Whether all ranks make the same calls. Every rank announces each operation by a descriptor and by a hash
// over all its calls so far in the epoch, and the flags of its data carry that hash too: who hears from a
// rank sees whether the two have called the same, now and ever before. A rank that needs nobody's data, a
// broadcast's root, leaves at once; it looks at what the others have announced before it gets kHistory
// operations ahead of them, and when they agree. With the setting check off each call is hashed by itself,
// and only who needs the other's data compares.
#pragma once

#include <cstdint>
#include <optional>

#include "comm/call.h"
#include "comm/epoch.h"

namespace tugline::comm {

/// Two ranks' different calls.
struct CallDifference {
  std::int32_t peer = -1;  ///< rank of the epoch
  std::uint64_t sequence = 0;
  Descriptor mine, theirs;
};

/// Takes the epoch's next sequence number for a call.
std::uint64_t begin_call(Epoch& epoch, const Descriptor& descriptor) noexcept;
/// Tells the others of a call that has begun. The caller has made sure that all_have_called(needed_for()) it.
void announce(const Epoch& epoch, std::uint64_t sequence, const Descriptor& descriptor) noexcept;
/// What the flags of a call's data carry.
std::uint32_t fingerprint_of(const Epoch& epoch, std::uint64_t sequence) noexcept;

/// The last operation that all must have announced, equal to this rank's, before it announces `sequence`.
constexpr std::uint64_t needed_for(std::uint64_t sequence) noexcept {
  return sequence < kHistory ? 0 : sequence - kHistory + 1;
}

/// What another rank's announcement of an operation that this rank has begun says of all calls up to it.
enum class Announced : std::uint8_t { not_yet, same, different };
Announced look_at_call(const Epoch& epoch, std::uint32_t rank, std::uint64_t sequence) noexcept;
/// The first of the two ranks' calls up to `sequence` that differ.
CallDifference find_difference(const Epoch& epoch, std::uint32_t rank, std::uint64_t sequence) noexcept;

/// True once everybody is known to have made the same calls up to `sequence`. Otherwise sets `difference` if
/// somebody has made another one; never with the check off, when they only have to have come so far.
bool all_have_called(Epoch& epoch, std::uint64_t sequence,
                     std::optional<CallDifference>& difference) noexcept;
/// Whom all_have_called() waits for; -1: nobody.
std::int32_t first_not_called(const Epoch& epoch, std::uint64_t sequence) noexcept;

// At an agreement nobody runs ahead any more: who posts it notes what it has called, and when all have
// posted, all compare all notes. So either every rank finds a difference or none does.
/// `settlement`: how many agreements have settled this communicator on its present board, with this one.
void note_calls(const Epoch& epoch, std::uint64_t settlement) noexcept;
/// Once everybody but `lost` (original ranks) has posted. Whoever has made fewer calls than the other one has
/// called `agreement` instead.
std::optional<CallDifference> compare_notes(Epoch& epoch, std::uint64_t settlement, const core::RankSet& lost,
                                            const Descriptor& agreement) noexcept;

}  // namespace tugline::comm

// SPDX-License-Identifier: Apache-2.0
// The decided record: one per agreement, written once by a compare-and-swap, obeyed by everybody. Pure: works
// on atomics in memory that the caller provides (broker-owned shared memory in production, plain memory in
// the simulator), makes no system call and never blocks; the caller loops over advance() and does the
// waiting. The steps are in agreement_protocol.h; production, the simulator and the exhaustive model all run
// them.
//
// Protocol, for agreement number a (1, 2, ...) of one communicator family, over a window of W records:
//   1. A member that has read decision a-1 posts (a, complete | failed).
//   2. Who sees every member of the current membership posted, and none of them gone, proposes `committed`
//      when all posted complete, else `aborted`. The membership stays, so the proposal is the record itself.
//   3. Who sees a member gone proposes at once: `committed` for the survivors if all of them have posted
//      complete, else `aborted`. It first writes the cumulative set of the lost and the next epoch into its
//      own area for record a mod W. It waits only for survivors that have not yet posted a-W+1.
//   4. A proposer swaps decided[a mod W] from record a-W to its own. One swap wins; everybody obeys the
//      record, the proposers included. A member that is itself reported gone proposes nothing: it is removed.
//
// Why it is right:
//   - One decision. A record's number only grows, and the swap expects exactly record a-W.
//   - Every survivor reads it. Record a is overwritten by a+W only, whose proposer has seen a+1 or more
//     posted by every survivor (rules 2 and 3), and who posts a+1 has read a. The same holds for the
//     proposer's area: it is written again for a+W only, after the same check. This is why rule 3 must not
//     ignore the posts altogether: two early aborts in a row would take the record from a member that still
//     computes.
//   - A member that was removed but still runs (stopped, then continued) posts into its own word, which
//     nobody counts any more; its swap fails because the record has moved on, or it is the record and
//     everybody obeys it. It finds a later number, or itself among the lost, or another stamp in the
//     proposer's area: removed().
//   - A proposer that dies before the swap leaves an area that nobody reads; after it, the record stands and
//     the area lies in memory that outlives it.
//   - The epoch grows by one exactly when the lost set grows: both are written together, and rule 3 proposes
//     a changed membership only when it adds somebody to the set of a-1, which all survivors have read.
//
// All atomics are sequentially consistent, so the exhaustive model (which interleaves) is exact, and of
// several members that post and then look, the last one sees all posts: somebody always decides without a
// second look, and the others may sleep until then. On x86 that costs one locked store per agreement.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tugline::core {

enum class Verdict : std::uint8_t { undecided, committed, aborted };

inline constexpr std::uint32_t kMaxAgreementRanks = 256;
/// Records that stand at once (W above), a power of two: W - 1 agreements in a row can be aborted by deaths
/// while a survivor computes and has posted none of them.
inline constexpr std::uint32_t kAgreementRecords = 4;

/// One bit per original rank of the communicator.
struct RankSet {
  static constexpr std::uint32_t kWords = kMaxAgreementRanks / 64;
  std::uint64_t words[kWords] = {};

  void add(std::uint32_t rank) noexcept { words[rank / 64] |= std::uint64_t{1} << (rank % 64); }
  bool has(std::uint32_t rank) const noexcept { return (words[rank / 64] >> (rank % 64)) & 1; }
  bool empty() const noexcept {
    std::uint64_t any = 0;
    for (auto word : words) any |= word;
    return any == 0;
  }
  int count() const noexcept {
    int total = 0;
    for (auto word : words) total += std::popcount(word);
    return total;
  }
  friend RankSet operator|(RankSet left, const RankSet& right) noexcept {
    for (std::uint32_t i = 0; i < kWords; ++i) left.words[i] |= right.words[i];
    return left;
  }
  /// Those of the left that are not in the right.
  friend RankSet operator-(RankSet left, const RankSet& right) noexcept {
    for (std::uint32_t i = 0; i < kWords; ++i) left.words[i] &= ~right.words[i];
    return left;
  }
  friend bool operator==(const RankSet&, const RankSet&) = default;
};

/// Shared memory of one communicator family. Zero-initialised memory is a valid empty board.
struct AgreementBoard {
  using Word = std::atomic<std::uint64_t>;
  struct alignas(64) Post {
    Word word;  ///< agreement << 1 | failed
  };
  struct alignas(64) Proposal {
    Word agreement;              ///< whose proposal this is; written first, read last
    Word epoch;                  ///< the new epoch
    Word lost[RankSet::kWords];  ///< cumulative: all original ranks ever lost
  };
  /// agreement << 16 | proposer << 8 | membership changed << 2 | verdict
  alignas(64) Word decided[kAgreementRecords];
  Post posts[kMaxAgreementRanks];
  Proposal proposals[kMaxAgreementRanks][kAgreementRecords];
};

/// What everybody was told.
struct Decision {
  Verdict verdict = Verdict::undecided;
  std::uint64_t agreement = 0;
  std::uint64_t epoch = 0;
  RankSet lost;  ///< all original ranks lost up to and including this agreement

  friend bool operator==(const Decision&, const Decision&) = default;
};

/// One member's own memory of the protocol: plain values, so that a model can copy it.
struct AgreementState {
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint32_t records = kAgreementRecords;  ///< window in use, a power of two
  std::uint32_t seen = 0;                     ///< ranks below it have been seen to have posted `current`
  bool any_failed = false;                    ///< some of those posted `failed`
  bool removed = false;
  std::uint64_t current = 0;  ///< agreement posted last; equals last.agreement when none is open
  Decision last;
};

/// One member's side of the protocol. Not thread-safe; one per member and communicator family.
class Agreement {
 public:
  /// `rank` and `size` are original ones: they never change over the life of the communicator.
  Agreement(AgreementBoard& board, std::uint32_t rank, std::uint32_t size) noexcept;

  /// Starts agreement number last().agreement + 1 by posting. `complete` is false when any operation since
  /// the last one failed here. Requires that the agreement posted before has been decided; without effect
  /// once removed().
  void post(bool complete) noexcept;
  /// Makes what progress can be made now, given who is gone (original ranks; may lag, never lies, only
  /// grows). Returns the decision once there is one (then last() is updated); Verdict::undecided while
  /// waiting. Once this member is found to have been removed it returns `aborted` with this member among the
  /// lost, and removed() is true: whatever else the decision says is of no use to a member that has no part
  /// in it.
  Decision advance(const RankSet& gone) noexcept;
  /// As advance(), but proposes `aborted` at once when not everybody has posted, with nobody lost if nobody
  /// is gone: for a broker that is lost or a caller that gives up. May still have to wait for a survivor that
  /// lags kAgreementRecords - 1 agreements behind.
  Decision abort(const RankSet& gone) noexcept;

  /// Takes members out that another agreement has decided to be lost, without an agreement of this family.
  /// Every survivor does so between the same two agreements of this family, before it posts the second one.
  void exclude(const RankSet& lost) noexcept { state_.last.lost = state_.last.lost | lost; }

  const Decision& last() const noexcept { return state_.last; }
  bool removed() const noexcept { return state_.removed; }
  /// True between post() and the decision.
  bool open() const noexcept { return state_.current != state_.last.agreement && !state_.removed; }
  /// Number of the agreement posted last, decided or not; 0 before the first.
  std::uint64_t posted() const noexcept { return state_.current; }
  /// How far another member is: it posts only when it has ended all its operations before.
  enum class Ahead : std::uint8_t { no, complete, failed };
  /// Whether `rank` has posted an agreement that this member has not posted yet.
  Ahead ahead(std::uint32_t rank) const noexcept;
  /// Members of the current membership that have not posted the current agreement, for reports.
  RankSet missing() const noexcept;

 private:
  AgreementBoard& board_;
  AgreementState state_;
};

}  // namespace tugline::core

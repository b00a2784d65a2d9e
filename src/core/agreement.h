// SPDX-License-Identifier: Apache-2.0
// The decided record: one per agreement, written once by a compare-and-swap, obeyed by everybody. Pure: works
// on atomics in memory that the caller provides (broker-owned shared memory in production, plain memory in
// the simulator), makes no system call and never blocks; the caller loops over advance() and does the
// waiting.
//
// Protocol, for agreement number a (1, 2, ...) of one communicator family:
//   1. every member posts (a, complete|failed);
//   2. who sees all members of the current membership posted and alive proposes: committed when all posted
//   complete,
//      else aborted;
//   3. who sees a member gone proposes at once: committed for the survivors if all of them have posted
//   complete,
//      else aborted; the proposal lists the lost and bumps the epoch;
//   4. a proposer writes its proposal into its own area, then swaps decided[a mod 2] from the record of a-2
//   to its own.
//      One swap wins. Everybody, the proposers included, obeys the record.
// A record is overwritten only by agreement a+2, which needs the posts of all survivors for a+1, so every
// survivor has read it. A removed member that comes back finds another number there, or itself among the
// lost: stale_epoch.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tugline::core {

enum class Verdict : std::uint8_t { undecided, committed, aborted };

inline constexpr std::uint32_t kMaxAgreementRanks = 256;
/// One bit per original rank of the communicator.
struct RankSet {
  std::uint64_t words[kMaxAgreementRanks / 64] = {};
  void add(std::uint32_t rank) noexcept { words[rank / 64] |= std::uint64_t{1} << (rank % 64); }
  bool has(std::uint32_t rank) const noexcept { return (words[rank / 64] >> (rank % 64)) & 1; }
  int count() const noexcept {
    int total = 0;
    for (auto word : words) total += std::popcount(word);
    return total;
  }
  friend bool operator==(const RankSet&, const RankSet&) = default;
};

/// Shared memory of one communicator family. Zero-initialised memory is a valid empty board.
struct AgreementBoard {
  struct alignas(64) Post {
    std::atomic<std::uint64_t> word;  ///< agreement << 1 | failed
  };
  struct alignas(64) Proposal {
    std::atomic<std::uint64_t> epoch;
    std::atomic<std::uint64_t> lost[kMaxAgreementRanks / 64];  ///< cumulative: all original ranks ever lost
  };
  alignas(64) std::atomic<std::uint64_t> decided[2];  ///< agreement << 16 | (proposer + 1) << 4 | verdict
  Post posts[kMaxAgreementRanks];
  Proposal proposals[kMaxAgreementRanks][2];
};

/// What everybody was told.
struct Decision {
  Verdict verdict = Verdict::undecided;
  std::uint64_t agreement = 0;
  std::uint64_t epoch = 0;
  RankSet lost;  ///< all original ranks lost up to and including this agreement
};

/// One member's side of the protocol. Not thread-safe; one per member and communicator family.
class Agreement {
 public:
  /// `rank` and `size` are original ones: they never change over the life of the communicator.
  Agreement(AgreementBoard& board, std::uint32_t rank, std::uint32_t size) noexcept;

  /// Starts agreement number last().agreement + 1 by posting. `complete` is false when any operation since
  /// the last one failed here.
  void post(bool complete) noexcept;
  /// Makes what progress can be made now, given who is gone (original ranks; may lag, never lie). Returns the
  /// decision once there is one (then last() is updated); Verdict::undecided while waiting. If this member
  /// was removed, the decision's `lost` contains it or its agreement number is not the awaited one.
  Decision advance(const RankSet& gone) noexcept;

  const Decision& last() const noexcept { return last_; }
  bool removed() const noexcept { return removed_; }
  /// Members of the current membership that have not posted the current agreement, for reports.
  RankSet missing() const noexcept;

 private:
  AgreementBoard& board_;
  std::uint32_t rank_;
  std::uint32_t size_;
  std::uint64_t current_ = 0;
  Decision last_;
  bool removed_ = false;
};

}  // namespace tugline::core

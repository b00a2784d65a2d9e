// SPDX-License-Identifier: Apache-2.0
// Who is still there, and what became of the work: runs a piece of work as a transaction that ends with an
// agreement, and does it again among the survivors when a rank was lost on the way.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tugline/communicator.h"

namespace train_fashion {

/// Nanoseconds of the monotonic clock, the same for all processes of a host.
std::int64_t now_ns() noexcept;

/// One change of the membership, as this rank saw it. Times are now_ns(), 0 where not seen.
struct MembershipChange {
  struct Lost {
    int rank;  ///< as numbered when the job started
    std::string reason;
  };
  std::uint64_t step = 0;
  bool redone = false;  ///< the step was aborted and done again with the new membership
  std::vector<Lost> lost;
  int size_after = 0;
  std::uint64_t agreement = 0;
  std::uint64_t epoch = 0;
  std::int64_t noticed_ns = 0;
  std::int64_t agreed_ns = 0;
  std::int64_t next_reduced_ns = 0;  ///< the first operation of the new membership was done
};

/// Not thread-safe.
class Membership {
 public:
  explicit Membership(tugline::Communicator communicator);

  /// Runs `work` until an agreement commits it. `work` may throw the loss of a peer, and is then run again;
  /// all its other errors pass through. Every rank calls it in the same order.
  void settle(std::uint64_t step, const std::function<void()>& work);
  /// Tells within `work` that an operation has failed, before the clean-up that ends in the error.
  void loss_noticed() noexcept;
  /// Tells that an operation of the current membership was completed.
  void operation_done() noexcept;

  tugline::Communicator& communicator() noexcept { return communicator_; }
  /// Of the current ranks, their numbers at the start of the job.
  const std::vector<int>& members() const noexcept { return members_; }
  const std::vector<MembershipChange>& changes() const noexcept { return changes_; }
  std::int64_t agreeing_ns() const noexcept { return agreeing_ns_; }

 private:
  void take_over(const tugline::Outcome& outcome, std::uint64_t step);

  tugline::Communicator communicator_;
  std::vector<int> members_;
  std::vector<MembershipChange> changes_;
  std::int64_t agreeing_ns_ = 0;
  std::int64_t noticed_ns_ = 0;  ///< of the current attempt, 0: nothing
};

}  // namespace train_fashion

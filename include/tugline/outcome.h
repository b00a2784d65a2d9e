// SPDX-License-Identifier: Apache-2.0
// What became of the work since the last agreement: the same answer at all survivors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tugline {

/// A rank that is gone, by its number before this agreement.
struct LostRank {
  int rank = -1;
  std::string reason;  ///< "rank 2 died (its process ended), noticed 0.1 ms ago", "rank 2 left the job"
};

class Outcome {
 public:
  Outcome() = default;
  Outcome(bool committed, bool changed, std::uint64_t agreement, std::uint64_t epoch,
          std::vector<LostRank> lost)
      : committed_(committed),
        changed_(changed),
        agreement_(agreement),
        epoch_(epoch),
        lost_(std::move(lost)) {}

  /// True when every survivor completed every operation since the last agreement. Otherwise outputs since
  /// then are undefined at all survivors, and the step is done again.
  bool committed() const noexcept { return committed_; }
  /// True when ranks were lost: rank() and size() of the communicator have changed, and its epoch.
  bool membership_changed() const noexcept { return changed_; }
  std::uint64_t agreement() const noexcept { return agreement_; }
  std::uint64_t epoch() const noexcept { return epoch_; }
  const std::vector<LostRank>& lost() const noexcept { return lost_; }

 private:
  bool committed_ = true;
  bool changed_ = false;
  std::uint64_t agreement_ = 0;
  std::uint64_t epoch_ = 0;
  std::vector<LostRank> lost_;
};

}  // namespace tugline

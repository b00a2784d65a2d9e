// SPDX-License-Identifier: Apache-2.0
// What a run measured, and how it is shown.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "membership.h"
#include "options.h"

namespace train_fashion {

/// One rank's figures: plain numbers, gathered from all ranks at the end. Times of the last membership change
/// are microseconds after the kill, negative where there was none or its time is not known.
struct RankReport {
  std::int64_t rank = 0;  ///< as numbered when the job started
  std::int64_t pid = 0;
  std::uint64_t images = 0;
  double elapsed_s = 0;
  double waiting_s = 0;
  std::uint64_t steps = 0;
  std::uint64_t overlapped_steps =
      0;  ///< the first bucket's reduction started before the backward pass ended
  std::uint64_t parameters_hash = 0;
  std::uint64_t version = 0;
  std::uint64_t outcomes_hash = 0;  ///< of every membership change this rank was told
  double noticed_us = -1;
  double agreed_us = -1;
  double next_reduced_us = -1;
};

struct RunReport {
  int ranks_at_start = 0;
  std::uint64_t parameters = 0;
  std::uint64_t steps = 0;
  double elapsed_s = 0;
  double images_per_s = 0;
  double train_accuracy = 0;  ///< over the last epoch's worth of steps, or all if fewer
  double test_accuracy = 0;
  int train_images = 0;
  int test_images = 0;
  std::vector<double> losses;  ///< mean over the global batch, by step
  std::vector<MembershipChange> changes;
  std::vector<RankReport> ranks;

  double waiting_share() const noexcept;
  double overlapped_share() const noexcept;
  bool same_parameters() const noexcept;
  bool same_outcomes() const noexcept;
};

/// The table printed at the end.
std::string table(const RunReport& report);

/// Throws tugline::Error{system}.
void write_json(const std::filesystem::path& path, const Options& options, const RunReport& report);
/// The membership changes of a --json file as ranks that leave before a step. Throws UsageError.
std::vector<RankAtStep> read_replay(const std::filesystem::path& path);

}  // namespace train_fashion

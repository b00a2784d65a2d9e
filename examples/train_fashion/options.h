// SPDX-License-Identifier: Apache-2.0
// The command line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tugline/error.h"

namespace train_fashion {

/// A wrong command line: exit code 2.
class UsageError : public tugline::Error {
 public:
  UsageError(std::string what_failed, std::string what_to_do,
             tugline::SourceLocation location = tugline::SourceLocation::current());
};

/// A rank, as numbered when the job started, and the step (from 0) at which something happens to it.
struct RankAtStep {
  int rank;
  std::uint64_t step;
};

/// What the ranks do when all is reported.
enum class Ending { leave, killed };

struct Options {
  int ranks = 0;  ///< 0: those of the launcher
  int epochs = 2;
  int batch = 256;       ///< images of a step over all ranks
  int micro_batch = 64;  ///< images that a rank computes at once, at most
  std::optional<std::uint64_t>
      steps;  ///< to do; the learning rate still follows the epochs if these are fewer
  std::uint64_t seed = 1;
  float learning_rate = 0.1F;  ///< the peak
  std::string device = "auto";
  std::filesystem::path data;
  std::string model = "model";  ///< rank r publishes its parameters as "<model>/r"
  std::vector<RankAtStep> kills;
  std::vector<RankAtStep> losses;  ///< leave the job, at the step's beginning
  std::filesystem::path replay;    ///< a --json file whose membership changes are repeated; empty: none
  std::filesystem::path json;      ///< empty: none
  std::uint64_t progress_steps = 50;
  bool batch_trace = false;
  Ending ending = Ending::leave;
  std::string find;  ///< not empty: no training, look at this named buffer
};

/// Throws UsageError. Returns nothing when the help text was asked for and printed.
std::optional<Options> parse_options(int argc, char** argv);

/// Options that depend on the number of ranks and steps. Throws UsageError.
void check_against_job(const Options& options, int size, std::uint64_t steps);

}  // namespace train_fashion

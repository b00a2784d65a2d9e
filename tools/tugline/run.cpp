// SPDX-License-Identifier: Apache-2.0
// `tugline run`: starts a job and says how it ended.
#include <fmt/format.h>

#include <algorithm>

#include "commands.h"
#include "launch/job.h"
#include "launch/program.h"

namespace tugline::cli {
namespace {

int exit_code(const LaunchResult& result, LostRanks lost_ranks) {
  if (result.stop_signal != 0 || result.error_error != 0) return kExitFailed;
  const auto& ranks = result.ranks;
  bool any_ok = std::any_of(ranks.begin(), ranks.end(), [](const RankEnd& end) { return end.ok(); });
  bool all_fine = std::all_of(ranks.begin(), ranks.end(), [lost_ranks](const RankEnd& end) {
    return end.ok() || (lost_ranks == LostRanks::allowed && end.signal != 0);
  });
  return any_ok && all_fine ? kExitOk : kExitFailed;
}

}  // namespace

int run(const RunOptions& options) {
  require_device(options.device);
  JobRequest request{.program = find_program(options.command.front()),
                     .arguments = options.command,
                     .ranks = options.ranks,
                     .device = options.device,
                     .environment = options.environment,
                     .broker_socket = options.broker_socket,
                     .prefix = options.prefix,
                     .on_failure = options.on_failure,
                     .binding = options.binding,
                     .grace = options.grace};
  auto result = launch_job(request);
  if (result.stop_signal != 0) {
    fmt::print(stderr, "tugline: the job was ended by signal {}\n", result.stop_signal);
  } else {
    require_output(result);
  }
  return exit_code(result, options.lost_ranks);
}

}  // namespace tugline::cli

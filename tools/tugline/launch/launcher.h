// SPDX-License-Identifier: Apache-2.0
// Runs the processes of a job from start to end: output, signals, exit, nothing left behind.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "options.h"

namespace tugline::cli {

/// How one rank ended.
struct RankEnd {
  int rank = 0;
  pid_t pid = 0;
  int exit_code = 0;
  int signal = 0;  ///< that killed it, 0 if none
  bool ok() const noexcept { return exit_code == 0 && signal == 0; }
};

struct LaunchRequest {
  std::string program;                 ///< path
  std::vector<std::string> arguments;  ///< argv, the name first
  int ranks = 1;
  std::function<std::vector<std::string>(int rank)> environment;  ///< "NAME=VALUE" of one rank
  Prefix prefix = Prefix::rank;
  OnFailure on_failure = OnFailure::keep_going;
  Binding binding = Binding::none;
  std::chrono::milliseconds grace{5000};
  std::function<void(const RankEnd&)> on_end;  ///< told of each rank's end, before it is reported
  pid_t broker = 0;      ///< a child of this process that is no rank and is left alone; 0: none
  int broker_link = -1;  ///< a socket that hangs up when the broker is gone, which is reported once; -1: none
};

struct LaunchResult {
  std::vector<RankEnd> ranks;
  int stop_signal = 0;   ///< that ended the job from outside, 0 if none
  int output_error = 0;  ///< errno that ended it because standard output could not be written, 0 if none
  int error_error = 0;   ///< likewise standard error
};

/// Starts the ranks and waits for all of them. Each failed rank is reported on standard error in one line
/// when it ends. SIGINT, SIGTERM and SIGHUP end the tree. On return, also by exception, no process of the
/// job is left. Changes this process's signal mask and makes it a subreaper; call it once.
LaunchResult launch(const LaunchRequest& request);

}  // namespace tugline::cli

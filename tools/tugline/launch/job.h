// SPDX-License-Identifier: Apache-2.0
// A job started by this command: its broker, the ranks' environment, the ranks. Used by run and bench.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launch/launcher.h"

namespace tugline::cli {

struct JobRequest {
  std::string program;                 ///< path
  std::vector<std::string> arguments;  ///< argv, the name first
  int ranks = 1;
  DeviceChoice device = DeviceChoice::automatic;
  std::vector<std::pair<std::string, std::string>> environment;  ///< added to every rank's
  std::string broker_socket;                                     ///< empty: start a broker
  Prefix prefix = Prefix::rank;
  OnFailure on_failure = OnFailure::keep_going;
  Binding binding = Binding::none;
  std::chrono::milliseconds grace{5000};
};

/// Starts the broker and the ranks, waits for the ranks, ends the broker. Throws tugline::Error when the job
/// cannot be started; nothing is left then.
LaunchResult launch_job(const JobRequest& request);

/// Throws, as write_output() does, when the job was ended because its output could not be written.
void require_output(const LaunchResult& result);

/// Throws Error{unsupported} for a device that this build does not have.
void require_device(DeviceChoice device);

}  // namespace tugline::cli

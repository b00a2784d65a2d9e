// SPDX-License-Identifier: Apache-2.0
// Starts one process of a job: own process group, dies with its parent, clean signal state.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace tugline::cli {

struct SpawnRequest {
  std::string program;  ///< path
  std::vector<std::string> arguments;
  std::vector<std::string> environment;  ///< "NAME=VALUE"
  int standard_input = -1;               ///< descriptors to become 0, 1, 2; the caller keeps them
  int standard_output = -1;
  int standard_error = -1;
  std::optional<rlimit> descriptors;  ///< limit of open descriptors; none: the parent's
  int cpu = -1;                       ///< -1: wherever the parent may run
};

/// Forks and execs. Returns once the program runs; throws Error{system} that names it and errno when it
/// cannot be started. The child leads its own process group and gets SIGKILL if the calling thread ends.
pid_t spawn(const SpawnRequest& request);

}  // namespace tugline::cli

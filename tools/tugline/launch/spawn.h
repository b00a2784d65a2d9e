// SPDX-License-Identifier: Apache-2.0
// Starts one process of a job: its process group, dies with its parent, clean signal state.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace tugline::cli {

struct SpawnRequest {
  std::string program;  ///< path
  std::vector<std::string> arguments;
  std::vector<std::string> environment;  ///< "NAME=VALUE"
  int standard_input = -1;               ///< descriptors to become 0, 1, 2; the caller keeps them
  int standard_output = -1;
  int standard_error = -1;
  std::optional<rlimit> descriptors;  ///< limit of open descriptors; none: the parent's
  std::vector<int> cpus = {};         ///< where it may run; none: wherever the parent may
  bool own_group = true;              ///< leads a process group; else it stays in the parent's
};

/// A process that has been forked and is on its way to its program.
class Spawned {
 public:
  /// Forks. The child gets SIGKILL if the calling thread ends, and takes over the limits, masks and signals
  /// that are ignored here, but SIGPIPE and SIGXFSZ, which become the default.
  /// Throws Error{system}.
  explicit Spawned(const SpawnRequest& request);
  pid_t pid() const noexcept { return pid_; }
  /// Blocks until the program runs; throws Error{system} that names it and errno when it cannot be started.
  void confirm();

 private:
  std::string program_;
  pid_t pid_ = 0;
  base::UniqueFd report_;
};

}  // namespace tugline::cli

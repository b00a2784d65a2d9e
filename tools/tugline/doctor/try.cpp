// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "doctor/finding.h"
#include "tugline/error.h"

namespace tugline::cli {

int try_in_child(const std::function<int()>& probe) {
  pid_t child = ::fork();
  if (child < 0) {
    throw Error(ErrorCode::system, "cannot fork to try what this machine allows",
                "raise the limit of processes (ulimit -u) or of the cgroup (pids.max)",
                {.native_code = errno});
  }
  if (child == 0) ::_exit(probe());
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return errno;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace tugline::cli

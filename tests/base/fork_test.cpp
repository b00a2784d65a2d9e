// SPDX-License-Identifier: Apache-2.0
#include "base/fork.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tugline::base {
namespace {

int code_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ProcessIdentity, IsTheSameInAProcessAndAnotherInItsChildren) {
  const auto mine = process_identity();
  EXPECT_NE(mine, 0u);
  EXPECT_EQ(process_identity(), mine);
  const auto differs = [mine] { return process_identity() != mine && process_identity() != 0 ? 0 : 1; };
  const pid_t forked = ::fork();
  if (forked == 0) ::_exit(differs());
  EXPECT_EQ(code_of(forked), 0);
  // Without the C library's fork handlers.
  const auto cloned = static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (cloned == 0) ::_exit(differs());
  EXPECT_EQ(code_of(cloned), 0);
  EXPECT_EQ(process_identity(), mine);
}

}  // namespace
}  // namespace tugline::base

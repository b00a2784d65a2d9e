// SPDX-License-Identifier: Apache-2.0
// The tests' main, which can also play a launched rank behind wrapper processes.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/launcher.h"

namespace {

/// Goes `wrappers` processes deeper, then prints the launcher that it finds.
int print_launch_facts(int wrappers) {
  while (wrappers-- > 0) {
    const pid_t child = fork();
    if (child < 0) return 1;
    if (child > 0) {
      int status = -1;
      return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    }
  }
  const auto facts = tugline::base::launch_facts(tugline::base::process_environment());
  std::fputs(facts.launcher_process.c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--print-launch-facts")
    return print_launch_facts(std::atoi(argv[2]));
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}

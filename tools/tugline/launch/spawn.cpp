// SPDX-License-Identifier: Apache-2.0
#include "launch/spawn.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/unique_fd.h"
#include "launch/program.h"
#include "tugline/error.h"

namespace tugline::cli {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  // execve() promises not to write to them.
  for (const auto& string : strings) result.push_back(const_cast<char*>(string.c_str()));
  result.push_back(nullptr);
  return result;
}

/// Only async-signal-safe calls: the parent may have threads.
[[noreturn]] void become(const SpawnRequest& request, char** argv, char** envp, pid_t parent, int report) {
  auto fail = [report] {
    int code = errno;
    // If even this fails the parent sees the exit status.
    [[maybe_unused]] auto written = ::write(report, &code, sizeof code);
    ::_exit(127);
  };
  if (request.own_group) ::setpgid(0, 0);
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail();
  if (::getppid() != parent) ::_exit(127);  // it died before the line above
  if (!request.cpus.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : request.cpus) CPU_SET(static_cast<std::size_t>(cpu), &set);
    if (::sched_setaffinity(0, sizeof set, &set) != 0) fail();
  }
  if (request.descriptors && ::setrlimit(RLIMIT_NOFILE, &*request.descriptors) != 0) fail();
  if (::dup2(request.standard_input, 0) < 0 || ::dup2(request.standard_output, 1) < 0 ||
      ::dup2(request.standard_error, 2) < 0)
    fail();
  // What the user had ignored (nohup) stays so; only this command's own doing is undone.
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGXFSZ, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(request.program.c_str(), argv, envp);
  fail();
  ::_exit(127);
}

}  // namespace

Spawned::Spawned(const SpawnRequest& request) : program_(request.program) {
  auto argv = pointers(request.arguments);
  auto envp = pointers(request.environment);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw Error(ErrorCode::system, fmt::format("cannot make a pipe to start \"{}\"", program_),
                "raise the limit of open descriptors (ulimit -n)", {.native_code = errno});
  }
  report_.reset(ends[0]);
  base::UniqueFd writing(ends[1]);
  pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) {
    throw Error(ErrorCode::system, fmt::format("cannot fork to start \"{}\"", program_),
                "raise the limit of processes (ulimit -u) or of the cgroup (pids.max)",
                {.native_code = errno});
  }
  if (pid_ == 0) become(request, argv.data(), envp.data(), parent, writing.get());
  // Both sides do it, so that it holds for whoever comes first; EACCES: the child has already run execve.
  if (request.own_group) ::setpgid(pid_, pid_);
}

void Spawned::confirm() {
  int code = 0;
  ssize_t got = 0;
  do {
    got = ::read(report_.get(), &code, sizeof code);
  } while (got < 0 && errno == EINTR);
  report_.reset();
  if (got != 0) fail_to_start(program_, code);
}

}  // namespace tugline::cli

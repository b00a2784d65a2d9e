// SPDX-License-Identifier: Apache-2.0
#include "launch/guard.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/random.h"
#include "broker/process_status.h"
#include "tugline/error.h"

namespace tugline::cli {
namespace {

/// Kills the process if it has the entry in its environment. Its descriptor is opened before that is read: so
/// the signal cannot reach another process that got the number meanwhile.
bool kill_if_marked(pid_t pid, const std::string& entry) {
  const base::UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return false;
  std::ifstream file(fmt::format("/proc/{}/environ", pid), std::ios::binary);
  // Not by an iterator: that throws where the process ends while it is read.
  std::ostringstream environment;
  environment << file.rdbuf();
  if (environment.str().find(entry) == std::string::npos) return false;
  ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
  pollfd ended{process.get(), POLLIN, 0};
  constexpr int kMilliseconds = 1000;  // one that cannot be killed now is met again in the next pass
  ::poll(&ended, 1, kMilliseconds);
  return true;
}

/// Until a look at all processes finds none: while one is killed another may be forked.
void kill_all_marked(const std::string& entry) {
  // The numbers of another PID namespace are other processes here.
  if (broker::own_identity().pid_namespace == 0) return;
  for (bool found = true; found;) {
    found = false;
    std::error_code error;
    for (const auto& each : std::filesystem::directory_iterator("/proc", error)) {
      const auto name = each.path().filename().string();
      pid_t pid = 0;
      const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), pid);
      if (failed == std::errc{} && end == name.data() + name.size() && kill_if_marked(pid, entry))
        found = true;
    }
  }
}

/// Out of sight of whatever ends the launcher: its terminal, its pipes, and the guard of an outer job, to
/// which the launcher is a process of a rank.
void hide(int socket) {
  ::setsid();
  ::prctl(PR_SET_NAME, "tugline-guard");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGPIPE}) ::signal(signal, SIG_IGN);
  ::dup2(socket, 0);
  if (::syscall(SYS_close_range, 1U, ~0U, 0U) != 0)
    for (int descriptor = 1; descriptor < static_cast<int>(::sysconf(_SC_OPEN_MAX)); ++descriptor)
      ::close(descriptor);
  if (::chdir("/") != 0) return;  // a mounted place stays busy; no harm besides
  // /proc shows the memory that the environment was started with.
  if (char* outer = std::getenv(Guard::kVariable); outer != nullptr)
    std::memset(outer, '-', std::strlen(outer));
}

[[noreturn]] void watch(int socket, const std::string& entry) {
  hide(socket);
  char word = 0;
  ssize_t got = 0;
  do {
    got = ::read(0, &word, 1);
  } while (got < 0 && errno == EINTR);
  // Without a word the launcher has been killed.
  if (got == 0) kill_all_marked(entry);
  ::_exit(0);
}

}  // namespace

Guard::Guard() : mark_(base::random_hex(16)) {
  const auto fail = [](const char* what) {
    throw Error(
        errno == EAGAIN || errno == ENOMEM ? ErrorCode::out_of_memory : ErrorCode::system,
        fmt::format("cannot {} for the guard of the job", what),
        "raise the limit of processes (ulimit -u, pids.max of the cgroup) or of open files (ulimit -n)",
        {.native_code = errno});
  };
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail("make a socket");
  socket_.reset(ends[0]);
  const base::UniqueFd other(ends[1]);
  const pid_t between = ::fork();
  if (between < 0) fail("fork");
  if (between == 0) {
    // Twice, so that it is no descendant of the launcher, who ends those.
    const pid_t guard = ::fork();
    if (guard != 0) ::_exit(guard < 0 ? errno : 0);
    watch(other.get(), fmt::format("{}={}", kVariable, mark_));
  }
  int status = 0;
  while (::waitpid(between, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) {
    errno = WIFEXITED(status) ? WEXITSTATUS(status) : EAGAIN;
    fail("fork");
  }
}

Guard::~Guard() {
  char word = 'e';
  if (::send(socket_.get(), &word, 1, MSG_NOSIGNAL) != 1) return;
  while (::read(socket_.get(), &word, 1) < 0 && errno == EINTR) {
  }
}

}  // namespace tugline::cli

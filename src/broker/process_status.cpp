// SPDX-License-Identifier: Apache-2.0
#include "broker/process_status.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/unique_fd.h"

namespace tugline::broker {
namespace {

/// Text behind `key` and its white space, up to the end of the line; empty if there is no such line.
std::string_view field(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    auto line = text.substr(0, text.find('\n'));
    if (line.starts_with(key)) {
      line.remove_prefix(key.size());
      const auto start = line.find_first_not_of(" \t");
      return start == std::string_view::npos ? std::string_view{} : line.substr(start);
    }
    text.remove_prefix(line.size() < text.size() ? line.size() + 1 : text.size());
  }
  return {};
}

}  // namespace

ProcessIdentity own_identity() noexcept {
  ProcessIdentity identity;
  identity.pid = static_cast<std::uint32_t>(::getpid());
  char link[16] = {};
  if (::readlink("/proc/self", link, sizeof link - 1) <= 0) return identity;
  if (std::strtoul(link, nullptr, 10) != identity.pid) return identity;
  struct stat space {};
  if (::stat("/proc/self/ns/pid", &space) == 0)
    identity.pid_namespace = static_cast<std::uint32_t>(space.st_ino);
  return identity;
}

ProcessCondition condition_of(std::uint32_t pid) noexcept {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%u/status", pid);
  const base::UniqueFd file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return ProcessCondition::unknown;
  // The file is below 2 KiB and comes in one read.
  char buffer[8192];
  const auto bytes = ::read(file.get(), buffer, sizeof buffer);
  if (bytes <= 0) return ProcessCondition::unknown;
  const std::string_view text(buffer, static_cast<std::size_t>(bytes));
  if (field(text, "CoreDumping:").starts_with('1')) return ProcessCondition::core_dumping;
  const auto state = field(text, "State:");
  if (state.starts_with('T')) return ProcessCondition::stopped;
  if (state.starts_with('t')) return ProcessCondition::traced;
  if (state.empty() || state.starts_with('Z') || state.starts_with('X')) return ProcessCondition::unknown;
  return ProcessCondition::running;
}

namespace {

/// Of one thread, from /proc/<pid>/task/<tid>/stat. `tid` is relative to `tasks`.
bool thread_can_run_its_code(int tasks, const char* tid) noexcept {
  // Flags of a task, in the kernel's include/linux/sched.h: it exits, waits for a core dump, dumps core.
  constexpr unsigned long kExiting = 0x4;
  constexpr unsigned long kAfterCoreDump = 0x8;
  constexpr unsigned long kDumpsCore = 0x200;
  char path[32];
  std::snprintf(path, sizeof path, "%s/stat", tid);
  const base::UniqueFd file(::openat(tasks, path, O_RDONLY | O_CLOEXEC));
  if (!file) return errno != ENOENT;
  char text[1024];
  const auto bytes = ::read(file.get(), text, sizeof text - 1);
  if (bytes < 0) return errno != ESRCH;
  text[bytes] = '\0';
  // The name, in parentheses, may hold anything.
  const char* behind_name = std::strrchr(text, ')');
  char state = 0;
  unsigned long flags = 0;
  if (behind_name == nullptr || std::sscanf(behind_name, ") %c %*d %*d %*d %*d %*d %lu", &state, &flags) != 2)
    return true;
  return state != 'Z' && state != 'X' && (flags & (kExiting | kAfterCoreDump | kDumpsCore)) == 0;
}

}  // namespace

bool can_run_its_code(std::uint32_t pid) noexcept {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%u/task", pid);
  DIR* tasks = ::opendir(path);
  if (tasks == nullptr) return errno != ENOENT;
  bool can = false;
  while (const dirent* entry = can ? nullptr : ::readdir(tasks))
    can = entry->d_name[0] != '.' && thread_can_run_its_code(::dirfd(tasks), entry->d_name);
  ::closedir(tasks);
  return can;
}

std::string describe(core::ProcessEnd end) {
  if (end.signal != 0)
    return fmt::format("was killed by signal {} ({})", end.signal, ::strsignal(end.signal));
  return fmt::format("ended with exit code {}", end.exit_code);
}

}  // namespace tugline::broker

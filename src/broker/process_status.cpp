// SPDX-License-Identifier: Apache-2.0
#include "broker/process_status.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

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

std::string describe(core::ProcessEnd end) {
  if (end.signal != 0)
    return fmt::format("was killed by signal {} ({})", end.signal, ::strsignal(end.signal));
  return fmt::format("ended with exit code {}", end.exit_code);
}

}  // namespace tugline::broker

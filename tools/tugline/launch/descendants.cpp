// SPDX-License-Identifier: Apache-2.0
#include "launch/descendants.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "broker/process_status.h"
#include "tugline/error.h"

namespace tugline::cli {
namespace {

struct Process {
  pid_t parent = 0;
  char state = '?';
};

/// "pid (name) state parent ...": the name may hold anything, so the last ')' counts.
bool read_stat(const std::string& path, Process& process) {
  std::ifstream file(path);
  std::string text;
  if (!std::getline(file, text, '\0')) return false;  // it has ended meanwhile
  auto close = text.rfind(')');
  if (close == std::string::npos || close + 4 > text.size()) return false;
  process.state = text[close + 2];
  const char* begin = text.data() + close + 4;
  return std::from_chars(begin, text.data() + text.size(), process.parent).ec == std::errc{};
}

}  // namespace

std::vector<pid_t> descendants(pid_t spared) {
  std::multimap<pid_t, pid_t> children;
  std::map<pid_t, char> states;
  std::error_code error;
  if (broker::own_identity().pid_namespace == 0) {
    throw Error(
        ErrorCode::system,
        "what the job left running cannot be found: /proc is not there, or shows another PID namespace",
        "mount /proc in this container (unshare --mount-proc, or mount -t proc proc /proc)");
  }
  std::filesystem::directory_iterator folder("/proc", error);
  if (error) {
    throw Error(ErrorCode::system, "cannot list /proc to find what the job left running",
                "mount /proc in this container", {.native_code = error.value()});
  }
  for (const auto& entry : folder) {
    std::string name = entry.path().filename();
    pid_t pid = 0;
    auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (failed != std::errc{} || end != name.data() + name.size()) continue;
    Process process;
    if (!read_stat(fmt::format("/proc/{}/stat", pid), process)) continue;
    children.emplace(process.parent, pid);
    states[pid] = process.state;
  }
  std::vector<pid_t> found;
  std::vector<pid_t> open{::getpid()};
  while (!open.empty()) {
    pid_t parent = open.back();
    open.pop_back();
    auto [begin, end] = children.equal_range(parent);
    for (auto at = begin; at != end; ++at) {
      if (at->second == spared) continue;
      open.push_back(at->second);
      if (states[at->second] != 'Z' && states[at->second] != 'X') found.push_back(at->second);
    }
  }
  return found;
}

}  // namespace tugline::cli

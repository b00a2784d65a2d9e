// SPDX-License-Identifier: Apache-2.0
// The process that started the ranks of this host, found by going up the tree of processes.
#include <fmt/core.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "base/launcher.h"

namespace tugline::base {
namespace {

struct ProcessFacts {
  int parent = 0;
  std::string start_ticks;  // with the pid it names one process of this boot
};

/// Fields 4 and 22 of /proc/<pid>/stat; the name in field 2 may hold spaces and parentheses.
std::optional<ProcessFacts> read_facts(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  std::istringstream rest(line.substr(line.rfind(')') + 1));
  const std::vector<std::string> fields(std::istream_iterator<std::string>(rest), {});
  if (fields.size() < 20) return std::nullopt;
  return ProcessFacts{std::atoi(fields[1].c_str()), fields[19]};
}

Environment read_environment(int pid) {
  std::ifstream file(fmt::format("/proc/{}/environ", pid), std::ios::binary);
  Environment environment;
  for (std::string entry; std::getline(file, entry, '\0');) {
    const auto equals = entry.find('=');
    if (equals != std::string::npos) environment.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return environment;
}

bool same_launch(const Environment& left, const Environment& right) {
  for (const auto variable : launch_variables()) {
    const auto first = left.find(std::string(variable));
    const auto second = right.find(std::string(variable));
    if ((first == left.end()) != (second == right.end())) return false;
    if (first != left.end() && first->second != second->second) return false;
  }
  return true;
}

}  // namespace

LaunchFacts launch_facts(const Environment& environment) {
  LaunchFacts facts;
  const int own = ::getpid();
  auto here = read_facts(own);
  facts.own_process = fmt::format("{}:{}", own, here ? here->start_ticks : "");
  int pid = here ? here->parent : ::getppid();
  // Wrappers (a shell, a profiler) pass the variables on; the launcher itself does not have them. An ancestor
  // whose environment cannot be read belongs to somebody else, and no wrapper does.
  while (pid > 1 && same_launch(read_environment(pid), environment)) {
    const auto above = read_facts(pid);
    if (!above) break;
    pid = above->parent;
  }
  const auto launcher = read_facts(pid);
  facts.launcher_process = fmt::format("{}:{}", pid, launcher ? launcher->start_ticks : "");
  return facts;
}

}  // namespace tugline::base

// SPDX-License-Identifier: Apache-2.0
#include "device/host/identity.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "base/cgroup.h"

namespace tugline::device::host {
namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name") && !line.starts_with("Model")) continue;
    if (auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  }
  return "host processor";
}

// "0-3,8": the processors that this process may run on.
std::string usable_processors() {
  // Larger than cpu_set_t: hosts with more than 1024 processors exist, and a short mask is refused.
  std::vector<unsigned long> mask(256, 0);
  auto* set = reinterpret_cast<cpu_set_t*>(mask.data());
  const std::size_t bytes = mask.size() * sizeof(unsigned long);
  if (::sched_getaffinity(0, bytes, set) != 0) return "unknown";
  std::string text;
  const int limit = static_cast<int>(bytes * 8);
  for (int first = 0; first < limit; ++first) {
    if (!CPU_ISSET_S(first, bytes, set)) continue;
    int last = first;
    while (last + 1 < limit && CPU_ISSET_S(last + 1, bytes, set)) ++last;
    if (!text.empty()) text += ",";
    text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
    first = last;
  }
  return text;
}

}  // namespace

DeviceInfo describe_host_device(int index) {
  if (index < 0) {
    throw Error(ErrorCode::invalid_argument, fmt::format("host device {} asked for", index),
                "number devices from 0");
  }
  DeviceInfo info;
  info.kind = DeviceKind::host;
  info.index = index;
  // The boot id is the same in every process and container of a host, and needs no file that an image may
  // lack.
  std::string boot = first_line("/proc/sys/kernel/random/boot_id");
  info.uuid = fmt::format("host-{}-{}", boot.empty() ? "unknown" : boot, index);
  info.name = fmt::format("{}, processors {}", processor_name(), usable_processors());
  const auto physical = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                        static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  info.memory_bytes = std::min(physical, base::cgroup_memory_limit().value_or(physical));
  return info;
}

}  // namespace tugline::device::host

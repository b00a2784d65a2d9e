// SPDX-License-Identifier: Apache-2.0
#include "base/cgroup.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace tugline::base {
namespace {

/// Where a controller of this process is, and the names of its files.
struct Place {
  bool unified = true;  // cgroup v2
  std::string mount;    // mount point
  std::string path;     // of this process below the mount point, "" or "/a/b"
};

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

bool lists(std::string_view options, std::string_view word) {
  const auto parts = split(options, ',');
  return std::find(parts.begin(), parts.end(), word) != parts.end();
}

std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  if (!(file >> text)) return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{}) return std::nullopt;  // "max"
  return value;
}

/// Sums the named rows of a file of lines "name value".
std::uint64_t sum_rows(const std::string& path, std::initializer_list<std::string_view> names) {
  std::ifstream file(path);
  std::string name;
  std::uint64_t value = 0;
  std::uint64_t sum = 0;
  while (file >> name >> value)
    if (std::find(names.begin(), names.end(), name) != names.end()) sum += value;
  return sum;
}

/// The cgroup path of this process from /proc/self/cgroup: lines "id:controllers:path".
std::optional<std::string> own_path(const std::string& root, bool unified, std::string_view controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    if (unified ? controllers.empty() : lists(controllers, controller)) return line.substr(second + 1);
  }
  return std::nullopt;
}

/// All mounts of a controller ("memory", "cpu") that this process can see. A line of mountinfo is
///   id parent device root mount options [tags...] - type source super-options
std::vector<Place> find_places(const std::string& root, std::string_view controller) {
  std::vector<Place> places;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const auto words = split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4) continue;
    const bool unified = dash[1] == "cgroup2";
    if (!unified && !(dash[1] == "cgroup" && lists(dash[3], controller))) continue;
    auto path = own_path(root, unified, controller);
    if (!path) continue;
    // A container sees its own part of the tree as the mount's root; what lies outside it is not visible.
    const auto& mount_root = words[3];
    if (mount_root != "/" && path->compare(0, mount_root.size(), mount_root) == 0)
      *path = path->substr(mount_root.size());
    if (*path == "/" || path->find("/..") != std::string::npos) path->clear();
    places.push_back({unified, root + words[4], *path});
  }
  return places;
}

void tighten(std::optional<CgroupMemory>& memory, const std::string& directory, bool unified) {
  const auto limit = read_number(directory + (unified ? "/memory.max" : "/memory.limit_in_bytes"));
  // Version 1 writes "no limit" as the largest multiple of a page in 63 bits.
  constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 62;
  if (!limit || *limit >= kUnlimited) return;
  const auto used = read_number(directory + (unified ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!used) return;
  const auto statistics = directory + "/memory.stat";
  const auto cache = unified ? sum_rows(statistics, {"inactive_file", "active_file"})
                             : sum_rows(statistics, {"total_inactive_file", "total_active_file"});
  const auto held = *used - std::min(*used, cache);
  const auto room = *limit - std::min(*limit, held);
  if (!memory) memory = CgroupMemory{*limit, room};
  memory->limit_bytes = std::min(memory->limit_bytes, *limit);
  memory->free_bytes = std::min(memory->free_bytes, room);
}

/// Calls `visit(directory, unified)` for this process's group and all above it.
template <class Visit>
void walk_up(const std::string& root, std::string_view controller, Visit&& visit) {
  for (auto& place : find_places(root, controller)) {
    for (;;) {
      visit(place.mount + place.path, place.unified);
      if (place.path.empty()) break;
      place.path.resize(place.path.rfind('/'));
    }
  }
}

/// Quota over period of one group. "max", -1 (version 1) and missing files are no limit.
std::optional<double> processor_quota(const std::string& directory, bool unified) {
  std::optional<std::uint64_t> quota;
  std::optional<std::uint64_t> period;
  if (unified) {
    std::ifstream file(directory + "/cpu.max");
    std::uint64_t microseconds = 0;
    if (file >> microseconds) quota = microseconds;
    if (quota && file >> microseconds) period = microseconds;
  } else {
    quota = read_number(directory + "/cpu.cfs_quota_us");
    period = read_number(directory + "/cpu.cfs_period_us");
  }
  if (!quota || !period || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

}  // namespace

std::optional<CgroupMemory> read_cgroup_memory(const std::string& root) {
  std::optional<CgroupMemory> memory;
  walk_up(root, "memory",
          [&](const std::string& directory, bool unified) { tighten(memory, directory, unified); });
  return memory;
}

std::optional<double> cgroup_processor_limit(const std::string& root) {
  std::optional<double> limit;
  walk_up(root, "cpu", [&](const std::string& directory, bool unified) {
    const auto quota = processor_quota(directory, unified);
    if (quota) limit = limit ? std::min(*limit, *quota) : *quota;
  });
  return limit;
}

std::optional<std::uint64_t> cgroup_memory_limit() {
  const auto memory = read_cgroup_memory();
  return memory ? std::optional(memory->limit_bytes) : std::nullopt;
}

std::optional<std::uint64_t> cgroup_memory_free() {
  const auto memory = read_cgroup_memory();
  return memory ? std::optional(memory->free_bytes) : std::nullopt;
}

std::optional<std::uint64_t> host_memory_free(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::uint64_t kibibytes = 0;
  bool found = false;
  for (std::string line; std::getline(file, line);) {
    std::istringstream row(line);
    std::string name;
    std::uint64_t value = 0;
    if (!(row >> name >> value)) continue;
    if (name == "MemAvailable:") found = true;
    if (name == "MemAvailable:" || name == "SwapFree:") kibibytes += value;
  }
  return found ? std::optional(kibibytes * 1024) : std::nullopt;
}

}  // namespace tugline::base

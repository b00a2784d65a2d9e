// SPDX-License-Identifier: Apache-2.0
// How much memory and processor time this process may use: limits of its control group (v1 and v2) and of
// the host.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tugline::base {

struct CgroupMemory {
  std::uint64_t limit_bytes = 0;  ///< the smallest limit on the way up
  std::uint64_t free_bytes = 0;   ///< the least room on the way up; page cache counts as room
};

/// Limits of this process's memory control group and of all above it, none when unlimited or unknown. `root`
/// is put before /proc and the mount points (tests). Reads files, so not for hot paths. Thread-safe.
std::optional<CgroupMemory> read_cgroup_memory(const std::string& root = "");

/// Processors' worth of time that the control group and those above it grant (cpu.max 150000/100000 is 1.5),
/// none when unlimited or unknown. `root` as above. Thread-safe.
std::optional<double> cgroup_processor_limit(const std::string& root = "");

std::optional<std::uint64_t> cgroup_memory_limit();
std::optional<std::uint64_t> cgroup_memory_free();

/// Memory that the whole host can still give (available memory plus free swap); none when unknown.
std::optional<std::uint64_t> host_memory_free(const std::string& root = "");

}  // namespace tugline::base

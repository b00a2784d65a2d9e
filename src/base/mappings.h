// SPDX-License-Identifier: Apache-2.0
// What this process has mapped where.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tugline::base {

/// A line of /proc/self/maps (proc_pid_maps(5)).
struct MappedRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::string access;       ///< "rw-p": may be read, written, executed; p is private, s shared
  std::uint64_t inode = 0;  ///< 0: anonymous
  std::string name;         ///< of a file, or "[heap]", "[stack]"; may be empty
};

/// All that overlaps [address, address + bytes), by address. Throws Error{system} where /proc cannot be read.
std::vector<MappedRange> mapped_ranges(const void* address, std::uint64_t bytes);

}  // namespace tugline::base

// SPDX-License-Identifier: Apache-2.0
#include "base/mappings.h"

#include <cerrno>
#include <fstream>
#include <sstream>

#include "tugline/error.h"

namespace tugline::base {
namespace {

MappedRange parse(const std::string& line) {
  MappedRange range;
  std::istringstream words(line);
  std::string offset;
  std::string device;
  char dash = 0;
  words >> std::hex >> range.begin >> dash >> range.end >> range.access >> offset >> device >> std::dec >>
      range.inode >> std::ws;
  std::getline(words, range.name);
  return range;
}

}  // namespace

std::vector<MappedRange> mapped_ranges(const void* address, std::uint64_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  std::vector<MappedRange> found;
  std::ifstream maps("/proc/self/maps");
  if (!maps)
    throw Error(ErrorCode::system, "/proc/self/maps cannot be read", "mount /proc",
                {.operation = "read /proc/self/maps", .native_code = errno});
  for (std::string line; std::getline(maps, line);) {
    auto range = parse(line);
    if (range.begin >= begin + bytes) break;
    if (range.end > begin) found.push_back(std::move(range));
  }
  return found;
}

}  // namespace tugline::base

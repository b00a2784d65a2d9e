// SPDX-License-Identifier: Apache-2.0
// populate(): pages of a mapping made resident by the process that will use them.
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>
#include <vector>

#include "base/cgroup.h"
#include "base/kernel.h"
#include "base/shared_memory.h"
#include "tugline/error.h"

namespace tugline::base {
namespace {

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

std::uint64_t page_bytes() {
  return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

struct Range {
  char* begin;  // page-aligned
  std::uint64_t bytes;
};

Range page_range(void* address, std::uint64_t bytes) {
  const auto page = page_bytes();
  const auto first = reinterpret_cast<std::uintptr_t>(address) / page * page;
  const auto last = (reinterpret_cast<std::uintptr_t>(address) + bytes + page - 1) / page * page;
  return {reinterpret_cast<char*>(first), last - first};
}

/// Bytes of the range that are not resident yet; counts no further than just past `enough`.
std::uint64_t missing_bytes(Range range, std::uint64_t enough) {
  const auto page = page_bytes();
  const auto piece = page << 16U;
  std::vector<unsigned char> resident(std::min(range.bytes, piece) / page);
  std::uint64_t missing = 0;
  for (std::uint64_t offset = 0; offset < range.bytes && missing <= enough; offset += piece) {
    const auto bytes = std::min(piece, range.bytes - offset);
    if (::mincore(range.begin + offset, bytes, resident.data()) != 0) {
      missing += bytes;  // what cannot be found out counts as missing
      continue;
    }
    const auto count =
        std::count_if(resident.begin(), resident.begin() + static_cast<std::ptrdiff_t>(bytes / page),
                      [](unsigned char flags) { return (flags & 1) == 0; });
    missing += static_cast<std::uint64_t>(count) * page;
  }
  return missing;
}

[[noreturn]] void throw_shortage(std::uint64_t asked, std::uint64_t free, const char* holder, int reason) {
  throw Error(ErrorCode::out_of_memory,
              fmt::format("{} bytes of host memory were asked, {} are free in the {}", asked, free, holder),
              "ask for less, or raise the memory limit", {.operation = "populate", .native_code = reason});
}

/// The kernel ends a process that passes its limit, so the room is looked at first. Another process may take
/// it in between: this is a guard against what is too large, not a reservation.
void check_room(Range range) {
  const auto in_group = cgroup_memory_free();
  const auto in_host = host_memory_free();
  const auto room = std::min(in_group.value_or(UINT64_MAX), in_host.value_or(UINT64_MAX));
  if (range.bytes <= room) return;
  if (missing_bytes(range, room) <= room) return;
  throw_shortage(range.bytes, room, room == in_group ? "control group" : "host", 0);
}

/// Fallback below Linux 5.14. An atomic "or 0" dirties the page and keeps what others write meanwhile.
void touch(Range range) {
  const auto page = page_bytes();
  for (std::uint64_t offset = 0; offset < range.bytes; offset += page)
    std::atomic_ref(range.begin[offset]).fetch_or(0, std::memory_order_relaxed);
}

}  // namespace

void populate(void* address, std::uint64_t bytes) {
  if (bytes == 0) return;
  const auto range = page_range(address, bytes);
  check_room(range);
  if (!kernel_at_least(5, 14)) return touch(range);
  while (::madvise(range.begin, range.bytes, MADV_POPULATE_WRITE) != 0) {
    switch (errno) {
      case EINTR:
      case EAGAIN:
        continue;
      case EINVAL:  // a kernel that says it is newer than it is
        return touch(range);
      case ENOMEM:
      case EFAULT:
        throw_shortage(bytes,
                       std::min(cgroup_memory_free().value_or(UINT64_MAX), host_memory_free().value_or(0)),
                       "host", errno);
      default:
        throw Error(ErrorCode::system, fmt::format("{} bytes of host memory cannot be populated", bytes),
                    "see the errno", {.operation = "madvise", .native_code = errno});
    }
  }
}

}  // namespace tugline::base

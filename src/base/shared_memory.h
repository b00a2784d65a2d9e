// SPDX-License-Identifier: Apache-2.0
// Shared host memory: sealed memfds and their mappings.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/unique_fd.h"

namespace tugline::base {

/// Makes a zeroed memfd of exactly `bytes` and seals its size (shrink, grow, seal), so that no holder can
/// take pages away from another's mapping. No page is allocated yet. Close-on-exec. `name` shows in
/// /proc/<pid>/fd. Throws Error{invalid_argument} for 0 bytes, Error{out_of_memory} when descriptors or
/// memory run out, else Error{system}.
UniqueFd create_sealed_memfd(const char* name, std::uint64_t bytes);

/// Checks a descriptor that came from elsewhere before it is mapped: a memfd of exactly `bytes` with its size
/// sealed. Throws Error{protocol}.
void check_sealed(int fd, std::uint64_t bytes);

enum class Access : std::uint8_t { read_only, read_write };

/// A shared mapping of the first `bytes` of a descriptor; unmapped when destroyed. The descriptor may be
/// closed afterwards. Movable. Moving does not change data().
class Mapping {
 public:
  Mapping() noexcept = default;
  /// Throws Error{out_of_memory} when address space or maps run out, else Error{system}.
  Mapping(int fd, std::uint64_t bytes, Access access);
  ~Mapping() { unmap(); }
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  void* data() const noexcept { return address_; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  explicit operator bool() const noexcept { return address_ != nullptr; }

 private:
  void unmap() noexcept;

  void* address_ = nullptr;
  std::uint64_t bytes_ = 0;
};

/// Makes the pages of a writable mapping resident now, charged to this process's control group and placed on
/// the NUMA node of the calling thread; contents stay as they are. Checks the room of the control group and
/// of the host first: Error{out_of_memory} names bytes asked and free, instead of the kernel killing the
/// process later. Blocks for as long as the kernel needs (about 0.2 s per GiB). Thread-safe.
void populate(void* address, std::uint64_t bytes);

}  // namespace tugline::base

// SPDX-License-Identifier: Apache-2.0
// Memory of the host device.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "base/cgroup.h"
#include "base/log.h"
#include "base/shared_memory.h"
#include "device/host/host_device.h"

namespace tugline::device::host {
namespace {

std::string label(const DeviceInfo& info) {
  return fmt::format("host:{}", info.index);
}

void require_bytes(const char* operation, std::size_t bytes, const DeviceInfo& info) {
  if (bytes > 0) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("{} of 0 bytes", operation),
              "ask for at least one byte", {.operation = operation, .device = label(info)});
}

void unmap(const char* operation, void* address, std::size_t bytes) noexcept {
  if (address == nullptr) return;
  if (::munmap(address, bytes) != 0) {
    base::log(base::LogLevel::error, "{} of {} bytes at {} failed with errno {}", operation, bytes, address,
              errno);
  }
}

}  // namespace

void* HostDevice::allocate(std::size_t bytes) {
  require_bytes("allocate", bytes, info_);
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    const int native = errno;
    throw Error(native == ENOMEM ? ErrorCode::out_of_memory : ErrorCode::system,
                fmt::format("allocation of {} bytes, while {} are free", bytes, free_bytes()),
                "allocate less, free memory, or raise the limit on address space (ulimit -v)",
                {.operation = "allocate", .device = label(info_), .native_code = native});
  }
  // Pages are made resident now: a shortage is an error here instead of a kill at the first touch.
  try {
    base::populate(address, bytes);
  } catch (...) {
    unmap("release after a failed allocation", address, bytes);
    throw;
  }
  return address;
}

void HostDevice::deallocate(void* address, std::size_t bytes) noexcept {
  unmap("deallocate", address, bytes);
}

void* HostDevice::import(int descriptor, std::size_t bytes) {
  require_bytes("import", bytes, info_);
  base::check_sealed(descriptor, bytes);
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) {
    const int native = errno;
    const bool forbidden = native == EPERM || native == EACCES;
    throw Error(forbidden          ? ErrorCode::permission_denied
                : native == ENOMEM ? ErrorCode::out_of_memory
                                   : ErrorCode::system,
                fmt::format("import of {} bytes of descriptor {} for reading and writing", bytes, descriptor),
                forbidden
                    ? "the segment is sealed or opened read-only: map it for reading only, or ask its owner"
                    : "unmap what is not used any more, or raise vm.max_map_count",
                {.operation = "import", .device = label(info_), .native_code = native});
  }
  return address;
}

void HostDevice::unimport(void* address, std::size_t bytes) noexcept {
  unmap("unimport", address, bytes);
}

std::uint64_t HostDevice::free_bytes() const {
  constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
  return std::min({base::cgroup_memory_free().value_or(kUnlimited),
                   base::host_memory_free().value_or(kUnlimited), info_.memory_bytes});
}

}  // namespace tugline::device::host

// SPDX-License-Identifier: Apache-2.0
#include "base/shared_memory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "base/kernel.h"
#include "tugline/error.h"

namespace tugline::base {
namespace {

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

[[noreturn]] void fail(const char* call, std::string what) {
  const int reason = errno;
  const ErrorContext context{.operation = call, .native_code = reason};
  if (reason == EMFILE || reason == ENFILE)
    throw Error(ErrorCode::out_of_memory, what + ": out of file descriptors", "raise ulimit -n", context);
  if (reason == ENOMEM || reason == ENOSPC)
    throw Error(ErrorCode::out_of_memory, what + ": out of memory",
                "ask for less, or give the job more memory", context);
  throw Error(ErrorCode::system, std::move(what), "see the errno", context);
}

}  // namespace

UniqueFd create_sealed_memfd(const char* name, std::uint64_t bytes) {
  if (bytes == 0)
    throw Error(ErrorCode::invalid_argument, fmt::format("shared memory \"{}\" of 0 bytes was asked", name),
                "ask for at least one byte", {.operation = "memfd_create"});
  // It counts for memfds too, and the kernel would end the process by SIGXFSZ.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur)
    throw Error(ErrorCode::out_of_memory, Remedy::fix_call,
                fmt::format("shared memory \"{}\" of {} bytes exceeds the limit on file sizes, {} bytes",
                            name, bytes, limit.rlim_cur),
                "raise the limit of this process: ulimit -f unlimited", {.operation = "memfd_create"});
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  // Linux 6.3 can refuse (sysctl vm.memfd_noexec) or warn about memfds that leave execution open.
  UniqueFd fd(::memfd_create(name, kernel_at_least(6, 3) ? kFlags | MFD_NOEXEC_SEAL : kFlags));
  if (!fd && errno == EINVAL) fd.reset(::memfd_create(name, kFlags));
  if (!fd) fail("memfd_create", fmt::format("shared memory \"{}\" of {} bytes cannot be made", name, bytes));
  if (!std::in_range<off_t>(bytes) || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    fail("ftruncate", fmt::format("shared memory \"{}\" cannot have {} bytes", name, bytes));
  if (::fcntl(fd.get(), F_ADD_SEALS, kSizeSeals) != 0)
    fail("F_ADD_SEALS", fmt::format("shared memory \"{}\" cannot be sealed", name));
  return fd;
}

void check_sealed(int fd, std::uint64_t bytes) {
  struct stat info {};
  if (::fstat(fd, &info) != 0)
    throw Error(ErrorCode::protocol, "the descriptor of a segment is not valid", "do not pass it on",
                {.operation = "fstat", .native_code = errno});
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals)
    throw Error(ErrorCode::protocol,
                fmt::format("a segment's size is not sealed (seals {:#x}, needed {:#x})", seals, kSizeSeals),
                "share only memory that create_sealed_memfd made", {.operation = "F_GET_SEALS"});
  if (info.st_size < 0 || static_cast<std::uint64_t>(info.st_size) != bytes)
    throw Error(ErrorCode::protocol,
                fmt::format("a segment has {} bytes, but {} were announced", info.st_size, bytes),
                "announce the size it was made with", {.operation = "fstat"});
}

Mapping::Mapping(int fd, std::uint64_t bytes, Access access) {
  const int protection = access == Access::read_write ? PROT_READ | PROT_WRITE : PROT_READ;
  void* address = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) fail("mmap", fmt::format("{} bytes cannot be mapped", bytes));
  address_ = address;
  bytes_ = bytes;
}

Mapping::Mapping(Mapping&& other) noexcept
    : address_(std::exchange(other.address_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    unmap();
    address_ = std::exchange(other.address_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void Mapping::unmap() noexcept {
  if (address_ != nullptr) ::munmap(address_, bytes_);
  address_ = nullptr;
  bytes_ = 0;
}

}  // namespace tugline::base

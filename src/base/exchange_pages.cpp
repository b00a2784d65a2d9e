// SPDX-License-Identifier: Apache-2.0
#include "base/exchange_pages.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/log.h"
#include "base/shared_memory.h"
#include "tugline/error.h"

namespace tugline::base {
namespace {

/// What is there twice at a time. Private pieces keep maps of their own when they have been moved.
constexpr std::uint64_t kPieceBytes = 64 << 20;

[[noreturn]] void fail(const char* call, std::uint64_t bytes, int reason) {
  throw Error(
      reason == EINVAL || reason == EBADF ? ErrorCode::system : ErrorCode::out_of_memory,
      fmt::format("{} bytes of memory cannot be exchanged in place", bytes),
      "free memory, or raise the limits on memory, address space (ulimit -v) and locked memory (ulimit -l)",
      {.operation = call, .native_code = reason});
}

/// msync(2): EBUSY for MS_INVALIDATE where a page is locked; nothing else happens.
bool is_locked(void* address, std::uint64_t bytes) noexcept {
  return ::msync(address, bytes, MS_ASYNC | MS_INVALIDATE) != 0 && errno == EBUSY;
}

/// New memory beside a piece of the range, to take its place.
class Substitute {
 public:
  Substitute(std::byte* piece, std::uint64_t bytes, int flags, int descriptor, std::uint64_t offset)
      : piece_(piece), bytes_(bytes) {
    void* address =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, descriptor, static_cast<off_t>(offset));
    if (address == MAP_FAILED) fail("mmap", bytes, errno);
    address_ = static_cast<std::byte*>(address);
    try {
      populate(address_, bytes_);
      if (is_locked(piece_, bytes_) && ::mlock(address_, bytes_) != 0) fail("mlock", bytes, errno);
    } catch (...) {
      ::munmap(address_, bytes_);
      throw;
    }
  }
  ~Substitute() {
    if (address_ != nullptr) ::munmap(address_, bytes_);
  }
  Substitute(const Substitute&) = delete;
  Substitute& operator=(const Substitute&) = delete;

  void take_its_place() {
    std::memcpy(address_, piece_, bytes_);
    if (::mremap(address_, bytes_, bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, piece_) == MAP_FAILED)
      fail("mremap", bytes_, errno);
    address_ = nullptr;
  }

 private:
  std::byte* piece_;
  std::uint64_t bytes_;
  std::byte* address_ = nullptr;
};

}  // namespace

void exchange_for_shared(void* address, std::uint64_t bytes, int memfd) {
  auto* const range = static_cast<std::byte*>(address);
  std::uint64_t done = 0;
  try {
    while (done < bytes) {
      const auto piece = std::min(kPieceBytes, bytes - done);
      Substitute(range + done, piece, MAP_SHARED, memfd, done).take_its_place();
      done += piece;
    }
  } catch (const Error&) {
    try {
      exchange_for_private(address, done, memfd);
    } catch (const Error& error) {
      log(LogLevel::warn, "{} bytes at {} are whole but stay shared memory: {}", done, address,
          error.what_failed());
    }
    throw;
  }
}

void exchange_for_private(void* address, std::uint64_t bytes, int memfd) {
  auto* const range = static_cast<std::byte*>(address);
  for (std::uint64_t done = 0; done < bytes;) {
    const auto piece = std::min(kPieceBytes, bytes - done);
    Substitute(range + done, piece, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0).take_its_place();
    // A seal on the size does not forbid holes. Where it fails the pages go with the memfd.
    if (::fallocate(memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(done),
                    static_cast<off_t>(piece)) != 0)
      log(LogLevel::debug, "pages of a memfd could not be freed: errno {}", errno);
    done += piece;
  }
}

}  // namespace tugline::base

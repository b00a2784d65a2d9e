// SPDX-License-Identifier: Apache-2.0
#include "base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "tugline/error.h"

namespace tugline::base {
namespace {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

std::uint32_t* address_of(const std::atomic<std::uint32_t>& word) noexcept {
  // The kernel only compares the word of a waiter; the const is given up for the system call's signature.
  return reinterpret_cast<std::uint32_t*>(const_cast<std::atomic<std::uint32_t>*>(&word));
}

}  // namespace

WaitResult futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                      std::chrono::nanoseconds timeout) {
  if (timeout <= std::chrono::nanoseconds::zero())
    return word.load(std::memory_order_relaxed) == expected ? WaitResult::timed_out : WaitResult::changed;
  timespec limit{};
  const timespec* limit_pointer = nullptr;
  if (timeout != kForever) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
    limit.tv_sec = static_cast<std::time_t>(seconds.count());
    limit.tv_nsec = static_cast<long>((timeout - seconds).count());
    limit_pointer = &limit;
  }
  if (::syscall(SYS_futex, address_of(word), FUTEX_WAIT, expected, limit_pointer, nullptr, 0) == 0)
    return WaitResult::woken;
  switch (errno) {
    case EAGAIN:
      return WaitResult::changed;
    case EINTR:
      return WaitResult::woken;
    case ETIMEDOUT:
      return WaitResult::timed_out;
    default:
      throw Error(ErrorCode::system, Remedy::report_bug, "futex wait was refused by the kernel",
                  "report this with the kernel's version", {.operation = "futex_wait", .native_code = errno});
  }
}

int futex_wake(std::atomic<std::uint32_t>& word, int count) noexcept {
  const long woken = ::syscall(SYS_futex, address_of(word), FUTEX_WAKE, count, nullptr, nullptr, 0);
  return woken < 0 ? 0 : static_cast<int>(woken);
}

}  // namespace tugline::base

// SPDX-License-Identifier: Apache-2.0
#include "base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <optional>

#include "base/clock.h"
#include "base/kernel.h"
#include "tugline/error.h"

namespace tugline::base {
namespace {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

std::uint32_t* address_of(const std::atomic<std::uint32_t>& word) noexcept {
  // The kernel only compares the word of a waiter; the const is given up for the system call's signature.
  return reinterpret_cast<std::uint32_t*>(const_cast<std::atomic<std::uint32_t>*>(&word));
}

timespec to_timespec(std::chrono::nanoseconds duration) noexcept {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(duration);
  return {static_cast<std::time_t>(seconds.count()), static_cast<long>((duration - seconds).count())};
}

/// What errno says of a wait that did not sleep to the end; none when the kernel refuses to wait.
std::optional<WaitResult> result_of(int error) noexcept {
  switch (error) {
    case EAGAIN:
      return WaitResult::changed;
    case EINTR:
      return WaitResult::woken;
    case ETIMEDOUT:
      return WaitResult::timed_out;
    default:
      return std::nullopt;
  }
}

}  // namespace

WaitResult futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                      std::chrono::nanoseconds timeout) {
  if (timeout <= std::chrono::nanoseconds::zero())
    return word.load(std::memory_order_relaxed) == expected ? WaitResult::timed_out : WaitResult::changed;
  const timespec limit = to_timespec(timeout);
  if (::syscall(SYS_futex, address_of(word), FUTEX_WAIT, expected, timeout == kForever ? nullptr : &limit,
                nullptr, 0) == 0)
    return WaitResult::woken;
  if (const auto result = result_of(errno)) return *result;
  throw Error(ErrorCode::system, Remedy::report_bug, "futex wait was refused by the kernel",
              "report this with the kernel's version", {.operation = "futex_wait", .native_code = errno});
}

WaitResult futex_wait_any(std::span<const FutexWord> words, std::chrono::nanoseconds timeout) {
  for (const auto& [word, expected] : words)
    if (word->load(std::memory_order_acquire) != expected) return WaitResult::changed;
#ifdef SYS_futex_waitv
  // Once refused, always refused: a filter or a kernel that does not say what it is.
  static std::atomic<bool> refused{false};
  if (words.size() > 1 && !refused.load(std::memory_order_relaxed) && kernel_at_least(5, 16)) {
    std::array<futex_waitv, kMostFutexWords> list;
    const auto count = std::min(words.size(), list.size());
    for (std::size_t i = 0; i < count; ++i)
      list[i] = {words[i].expected, reinterpret_cast<std::uintptr_t>(address_of(*words[i].word)), FUTEX_32,
                 0};
    const bool forever = timeout == kForever;
    // This call takes the moment instead of the duration.
    const timespec limit =
        forever ? timespec{} : to_timespec(std::chrono::nanoseconds(monotonic_ns()) + timeout);
    if (::syscall(SYS_futex_waitv, list.data(), count, 0, forever ? nullptr : &limit, CLOCK_MONOTONIC) >= 0)
      return WaitResult::woken;
    if (const auto result = result_of(errno)) return *result;
    refused.store(true, std::memory_order_relaxed);
  }
#endif
  return futex_wait(*words[0].word, words[0].expected, timeout);
}

int futex_wake(std::atomic<std::uint32_t>& word, int count) noexcept {
  const long woken = ::syscall(SYS_futex, address_of(word), FUTEX_WAKE, count, nullptr, nullptr, 0);
  return woken < 0 ? 0 : static_cast<int>(woken);
}

}  // namespace tugline::base

// SPDX-License-Identifier: Apache-2.0
// How a rank waits: it polls, then yields, then sleeps at its doorbell, and all the while watches the alarm.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "comm/epoch.h"
#include "comm/layout.h"
#include "core/control.h"
#include "tugline/error.h"
#include "tugline/function_ref.h"

namespace tugline::comm {

enum class Poll : std::uint8_t { blocked, progressed, done };

/// Tells whether something has happened that ends all waits. Called when the alarm has moved, and now and
/// then.
using AlarmCheck = FunctionRef<Status()>;

/// Everything a wait needs besides its condition. One per communicator and rank; not thread-safe.
struct WaitPlace {
  core::ControlSegment* control = nullptr;
  Doorbell* doorbell = nullptr;                    ///< mine
  std::atomic<std::uint32_t>* sleepers = nullptr;  ///< of the current bank
  const Epoch* epoch = nullptr;                    ///< the current one
  std::uint32_t alarm_seen = 0;
  std::string communicator;                         ///< its name
  std::uint32_t member = 0;                         ///< mine
  std::function<int(std::int32_t rank)> member_of;  ///< of a rank of the epoch; -1: it has not joined
  /// What is known of a rank that is waited for, beyond its flags; may be empty.
  std::function<std::string(std::int32_t rank)> about_rank;
  bool own_core = false;  ///< as many cores as ranks on this host: spinning harms nobody
};

/// Polls `poll` until it says done; blocks. `alarm` decides whether the waiting must end (a status other than
/// ok). `poll` is asked again after a bad alarm for as long as it moves: what can be completed is.
/// Reports after settings().report_after and ever more rarely, ends with timed_out after
/// settings().fail_after (never by default).
Status wait(WaitPlace& place, FunctionRef<Poll()> poll, AlarmCheck alarm, FunctionRef<WaitSubject()> subject);

/// Between two looks of a wait that does not sleep yet.
void give_way(bool own_core) noexcept;

/// After a release store that a waiter may sleep for: whether anybody has to be rung. The store may still be
/// on its way when this looks; it is the sleeper that makes the two agree, see Nap, so that the one who does
/// not sleep pays no barrier.
inline bool anybody_sleeps(const std::atomic<std::uint32_t>& sleepers) noexcept {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return sleepers.load(std::memory_order_relaxed) != 0;
}
void ring(Doorbell& doorbell) noexcept;

/// Lets this process take part in the barriers of sleepers; once per communicator. Where the kernel refuses,
/// a ring that was missed costs a sleeper the rest of its nap (patience.h).
void register_for_naps() noexcept;

/// Marks this rank asleep for its lifetime: between construction and the futex wait the condition is polled
/// once more. The constructor makes all registered processes pass a memory barrier after the mark is set:
/// whoever has not seen the mark by then has its earlier stores visible to that poll.
class Nap {
 public:
  explicit Nap(WaitPlace& place) noexcept;
  ~Nap();
  Nap(const Nap&) = delete;
  Nap& operator=(const Nap&) = delete;
  /// Sleeps until rung, the alarm differs from place.alarm_seen, or `nanoseconds` have passed.
  void sleep(std::uint64_t nanoseconds) noexcept;
  /// The same at the doorbells of several communicators; at least one.
  static void sleep_any(std::span<const std::unique_ptr<Nap>> naps, std::uint64_t nanoseconds);

 private:
  WaitPlace& place_;
  std::uint32_t rings_;
};

inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace tugline::comm

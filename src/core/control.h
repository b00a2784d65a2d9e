// SPDX-License-Identifier: Apache-2.0
// Layout of the control segment: one per job, created and owned by the broker, mapped by every member.
// It carries what must be seen faster than a socket can tell: who lives, and that somebody has died.
// Shared between processes of one build; `version` guards against any other.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace tugline::core {

inline constexpr std::uint32_t kControlMagic = 0x4c475554;  // "TUGL"
inline constexpr std::uint32_t kControlVersion = 1;
/// Members a job can ever have had at once on one host.
inline constexpr std::uint32_t kMaxMembers = 256;

enum class MemberState : std::uint32_t {
  empty,    ///< slot never used, or free again
  joining,  ///< accepted by the broker, lifeline not yet held
  alive,
  left,  ///< said good-bye
  dead,  ///< died or was removed; final
};

/// Why a member is dead.
enum class LossCause : std::uint32_t {
  none,
  lifeline,   ///< its robust futex was released by the kernel
  pidfd,      ///< its process ended
  socket,     ///< its connection ended without good-bye
  core_dump,  ///< it is writing a core file
  heartbeat,  ///< it is alive but has stopped ticking
  removed,    ///< an operator or a decision removed it
};

struct alignas(64) MemberSlot {
  /// Robust futex word, owned by the member's lifeline thread: thread id | FUTEX_WAITERS while it lives; the
  /// kernel sets FUTEX_OWNER_DIED when it ends. 0 before it is first held.
  std::atomic<std::uint32_t> lifeline;
  std::atomic<std::uint32_t> state;        ///< MemberState; left and dead are final for this incarnation
  std::atomic<std::uint32_t> cause;        ///< LossCause, valid once state is dead
  std::atomic<std::uint32_t> rank;         ///< rank in the world communicator
  std::atomic<std::uint64_t> heartbeat;    ///< ticks; written by the member alone
  std::atomic<std::uint64_t> died_at_ns;   ///< CLOCK_MONOTONIC of the notice, valid once state is dead
  std::atomic<std::uint32_t> incarnation;  ///< grows each time the slot is given to a new member
  std::atomic<std::uint32_t> reserved[5];
};
static_assert(sizeof(MemberSlot) == 64);

struct ControlSegment {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t capacity;    ///< kMaxMembers
  std::uint32_t world_size;  ///< ranks the job was started with
  /// Grows by one whenever some member becomes dead, some communicator is aborted, or the broker goes. Every
  /// wait polls it; it is also the futex word that long sleepers are woken by.
  alignas(64) std::atomic<std::uint32_t> alarm;
  /// Non-zero once the broker is gone or has given up on the job.
  alignas(64) std::atomic<std::uint32_t> broker_lost;
  alignas(64) MemberSlot members[kMaxMembers];
};
static_assert(std::is_standard_layout_v<ControlSegment>);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
              std::atomic<std::uint64_t>::is_always_lock_free);

/// Marks a member dead, once. Returns true for the caller whose mark it was; that caller must raise the alarm
/// (futex wake included; core makes no system call). Memory order: acq_rel; pairs with is_gone().
inline bool mark_dead(MemberSlot& slot, LossCause cause, std::uint64_t now_ns) noexcept {
  auto state = slot.state.load(std::memory_order_acquire);
  do {
    if (state == static_cast<std::uint32_t>(MemberState::dead) ||
        state == static_cast<std::uint32_t>(MemberState::left) ||
        state == static_cast<std::uint32_t>(MemberState::empty))
      return false;
    slot.cause.store(static_cast<std::uint32_t>(cause), std::memory_order_relaxed);
    slot.died_at_ns.store(now_ns, std::memory_order_relaxed);
  } while (!slot.state.compare_exchange_weak(state, static_cast<std::uint32_t>(MemberState::dead),
                                             std::memory_order_acq_rel));
  return true;
}

/// True when the member will never take part again (dead or left).
inline bool is_gone(const MemberSlot& slot) noexcept {
  auto state = slot.state.load(std::memory_order_acquire);
  return state == static_cast<std::uint32_t>(MemberState::dead) ||
         state == static_cast<std::uint32_t>(MemberState::left);
}

}  // namespace tugline::core

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
inline constexpr std::uint32_t kControlVersion = 4;
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
  absent,     ///< its process ended before it joined
};

/// How a process ended, as its parent was told.
struct ProcessEnd {
  int exit_code = 0;
  int signal = 0;  ///< that killed it, 0 if none

  /// In one word; 0 is none of these.
  constexpr std::uint32_t encode() const noexcept {
    return signal != 0 ? 0x200 | static_cast<std::uint32_t>(signal & 0xff)
                       : 0x100 | static_cast<std::uint32_t>(exit_code & 0xff);
  }
  static constexpr ProcessEnd decode(std::uint32_t word) noexcept {
    const auto value = static_cast<int>(word & 0xff);
    return (word & 0x200) != 0 ? ProcessEnd{0, value} : ProcessEnd{value, 0};
  }
  friend constexpr bool operator==(const ProcessEnd&, const ProcessEnd&) = default;
};

/// A member's state, the cause of its death and its incarnation. They change together, in one atomic word:
/// nobody can overwrite the first cause, and a detector that is late cannot hit the slot's next member.
struct MemberStatus {
  MemberState state = MemberState::empty;
  LossCause cause = LossCause::none;  ///< valid when dead
  std::uint16_t incarnation = 0;      ///< grows each time the slot is given to a new member

  static constexpr MemberStatus decode(std::uint32_t word) noexcept {
    return {static_cast<MemberState>(word & 0xff), static_cast<LossCause>(word >> 8 & 0xff),
            static_cast<std::uint16_t>(word >> 16)};
  }
  constexpr std::uint32_t encode() const noexcept {
    return static_cast<std::uint32_t>(state) | static_cast<std::uint32_t>(cause) << 8 |
           std::uint32_t{incarnation} << 16;
  }
  /// Will never take part again.
  constexpr bool gone() const noexcept { return state == MemberState::dead || state == MemberState::left; }
  friend constexpr bool operator==(const MemberStatus&, const MemberStatus&) = default;
};

struct alignas(64) MemberSlot {
  /// Robust futex word, owned by the member's lifeline thread: thread id | FUTEX_WAITERS while it lives; the
  /// kernel sets FUTEX_OWNER_DIED when it ends. 0 before it is first held and after a clean good-bye.
  std::atomic<std::uint32_t> lifeline;
  std::atomic<std::uint32_t> status;         ///< MemberStatus; use the functions below
  std::atomic<std::uint32_t> rank;           ///< rank in the world communicator
  std::atomic<std::uint32_t> pid;            ///< as the member sees itself; 0 until its lifeline is held
  std::atomic<std::uint64_t> heartbeat;      ///< ticks; written by the member alone
  std::atomic<std::uint64_t> died_at_ns;     ///< CLOCK_MONOTONIC of the notice, valid once dead
  std::atomic<std::uint32_t> pid_namespace;  ///< inode of its PID namespace: where `pid` means something
  /// 1 once the broker knows that the member's process runs no more: memory that it could write may be used
  /// again. Later than the notice of its death. Also a futex word.
  std::atomic<std::uint32_t> ended;
  std::atomic<std::uint64_t> ticked_at_ns;  ///< CLOCK_MONOTONIC of the last tick; 0 before the first
  std::atomic<std::uint32_t> process_end;   ///< ProcessEnd of a rank that is absent
  std::atomic<std::uint32_t> reserved[3];
};
static_assert(sizeof(MemberSlot) == 64);

/// Segments whose owner has freed them, or is gone, while others still refer to them: what the caches of
/// imports look at. Written by the broker alone: the id, then the count, both with release. A reader that has
/// seen `n` takes ids[n % kKept] and may trust it if the count is below n + kKept afterwards; if not, it has
/// missed some and takes all it knows for retired.
struct alignas(64) RetiredSegments {
  static constexpr std::uint64_t kKept = 256;
  std::atomic<std::uint64_t> count;  ///< ever, in this generation
  std::atomic<std::uint64_t> ids[kKept];

  void add(std::uint64_t id) noexcept {
    const auto at = count.load(std::memory_order_relaxed);
    ids[at % kKept].store(id, std::memory_order_release);
    count.store(at + 1, std::memory_order_release);
  }
};

/// What a member that has waited long waits for, so that others can say so: it is shown, nothing is decided
/// by it. A seqlock of words: `version` is odd while its owner writes; words mean what comm/wait_note.h says.
struct alignas(64) WaitNote {
  static constexpr std::uint32_t kWords = 14;
  std::atomic<std::uint64_t> taken;  ///< by a thread of the member
  std::atomic<std::uint64_t> version;
  std::atomic<std::uint64_t> words[kWords];
};
/// Waits of one member that can be shown at once: those of its threads.
inline constexpr std::uint32_t kWaitNotes = 2;

struct ControlSegment {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t capacity;    ///< kMaxMembers
  std::uint32_t world_size;  ///< ranks the job was started with
  std::uint32_t generation;  ///< which one of its broker's control segments this is, from 1
  /// Grows by one whenever some member becomes dead, some communicator is aborted, or the broker goes. Every
  /// wait polls it; it is also the futex word that long sleepers are woken by.
  alignas(64) std::atomic<std::uint32_t> alarm;
  /// Non-zero once the broker is gone or has given up on the job.
  alignas(64) std::atomic<std::uint32_t> broker_lost;
  RetiredSegments retired;
  alignas(64) MemberSlot members[kMaxMembers];
  WaitNote waits[kMaxMembers][kWaitNotes];
};
static_assert(std::is_standard_layout_v<ControlSegment>);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
              std::atomic<std::uint64_t>::is_always_lock_free);

/// Acquire: who sees a member gone sees what the one who marked it wrote before.
inline MemberStatus status_of(const MemberSlot& slot) noexcept {
  return MemberStatus::decode(slot.status.load(std::memory_order_acquire));
}
inline MemberState state_of(const MemberSlot& slot) noexcept {
  return status_of(slot).state;
}
inline LossCause cause_of(const MemberSlot& slot) noexcept {
  return status_of(slot).cause;
}
inline std::uint16_t incarnation_of(const MemberSlot& slot) noexcept {
  return status_of(slot).incarnation;
}

/// True when the member will never take part again (dead or left).
inline bool is_gone(const MemberSlot& slot) noexcept {
  return status_of(slot).gone();
}

/// Moves the slot's present member from `from` to `to`, once; false when it is not in `from` (any more). For
/// joining -> alive and alive -> left; the broker gives a slot to a new member by storing a whole
/// MemberStatus of the next incarnation after it has reset the other words. Memory order: acq_rel.
inline bool change_state(MemberSlot& slot, MemberState from, MemberState to) noexcept {
  auto word = slot.status.load(std::memory_order_acquire);
  for (;;) {
    auto status = MemberStatus::decode(word);
    if (status.state != from) return false;
    status.state = to;
    if (slot.status.compare_exchange_weak(word, status.encode(), std::memory_order_acq_rel,
                                          std::memory_order_acquire))
      return true;
  }
}

/// Marks the member that `seen` was read from dead, once. Returns true for the caller whose mark it was; that
/// caller must raise the alarm (futex wake included; core makes no system call). False when the member is
/// gone already or the slot has another one: `seen` must have been read before the evidence of its death.
/// Memory order: acq_rel; pairs with status_of().
inline bool mark_dead(MemberSlot& slot, MemberStatus seen, LossCause cause, std::uint64_t now_ns) noexcept {
  auto word = slot.status.load(std::memory_order_acquire);
  for (;;) {
    const auto status = MemberStatus::decode(word);
    if (status.incarnation != seen.incarnation) return false;
    if (status.state != MemberState::joining && status.state != MemberState::alive) return false;
    // Before the swap, so that it is there for who sees the mark; a loser of a tie differs by microseconds.
    slot.died_at_ns.store(now_ns, std::memory_order_relaxed);
    const MemberStatus dead{MemberState::dead, cause, status.incarnation};
    if (slot.status.compare_exchange_weak(word, dead.encode(), std::memory_order_acq_rel,
                                          std::memory_order_acquire))
      return true;
  }
}

/// As above for the slot's present member: for a caller that owns the slot's assignment, as the broker does.
inline bool mark_dead(MemberSlot& slot, LossCause cause, std::uint64_t now_ns) noexcept {
  return mark_dead(slot, status_of(slot), cause, now_ns);
}

}  // namespace tugline::core

// SPDX-License-Identifier: Apache-2.0
#include "broker/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <iterator>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/futex.h"
#include "base/settings.h"
#include "broker/identity.h"
#include "broker/process_status.h"
#include "tugline/error.h"

namespace tugline::broker {

using core::LossCause;
using core::MemberState;
using core::MemberStatus;

void Membership::begin_generation(int size) {
  auto descriptor = base::create_sealed_memfd("tugline-control", sizeof(core::ControlSegment));
  base::Mapping mapping(descriptor.get(), sizeof(core::ControlSegment), base::Access::read_write);
  auto* segment = new (mapping.data()) core::ControlSegment{};
  segment->magic = core::kControlMagic;
  segment->version = core::kControlVersion;
  segment->capacity = core::kMaxMembers;
  segment->world_size = static_cast<std::uint32_t>(size);
  segment->generation = ++generation_;
  control_fd_ = std::make_shared<const base::UniqueFd>(std::move(descriptor));
  control_mapping_ = std::move(mapping);
  size_ = size;
  rank_has_joined_.assign(static_cast<std::size_t>(size), false);
  members_.clear();
  for (auto& [rank, absent] : absent_)
    if (rank < size_) show(rank, absent);
}

void Membership::end_generation() noexcept {
  size_ = 0;
  for (auto& [rank, absent] : absent_) absent.slot.reset();
  members_.clear();
  connected_ = 0;
  control_mapping_ = {};
  control_fd_.reset();
}

Member& Membership::join(int rank, int size, std::uint64_t connection, base::UniqueFd pidfd) {
  const int expected = size_ != 0 ? size_ : configured_size_;
  if (expected != 0 && size != expected)
    throw Error(ErrorCode::mismatch,
                fmt::format("rank {} joins with world size {}, the job has {}", rank, size, expected),
                "start all ranks with the same world size, or use another job name", {.rank = rank});
  static_assert(base::kMostRanks == static_cast<int>(core::kMaxMembers), "one range in all messages");
  if (size < 1 || size > static_cast<int>(core::kMaxMembers))
    throw Error(ErrorCode::invalid_argument,
                fmt::format("world size {} is not between 1 and {}", size, core::kMaxMembers),
                "pass the number of ranks of the job", {.rank = rank});
  if (rank < 0 || rank >= size)
    throw Error(ErrorCode::invalid_argument, fmt::format("rank {} is not between 0 and {}", rank, size - 1),
                "number the ranks from 0");
  for (auto& [id, member] : members_) {
    if (member.rank != rank || !member.connected) continue;
    // Its end may stand in the same batch of events, behind this request.
    if (core::is_gone(control().members[id]) || has_ended(member.pidfd.get())) continue;
    throw Error(ErrorCode::already_exists,
                fmt::format("rank {} has joined already, as member {}, and is alive", rank, id),
                "give every process its own rank, or use another job name", {.rank = rank});
  }
  may_come(rank);
  if (size_ == 0) begin_generation(size);

  const MemberId id = free_slot();
  auto& slot = control().members[id];
  const auto incarnation = static_cast<std::uint16_t>(core::incarnation_of(slot) + 1);
  slot.lifeline.store(0, std::memory_order_relaxed);
  slot.rank.store(static_cast<std::uint32_t>(rank), std::memory_order_relaxed);
  slot.pid.store(0, std::memory_order_relaxed);
  slot.pid_namespace.store(0, std::memory_order_relaxed);
  slot.heartbeat.store(0, std::memory_order_relaxed);
  slot.ticked_at_ns.store(0, std::memory_order_relaxed);
  slot.died_at_ns.store(0, std::memory_order_relaxed);
  slot.ended.store(0, std::memory_order_relaxed);
  slot.process_end.store(0, std::memory_order_relaxed);
  slot.status.store(MemberStatus{MemberState::joining, LossCause::none, incarnation}.encode(),
                    std::memory_order_release);
  rank_has_joined_[static_cast<std::size_t>(rank)] = true;
  ++connected_;
  auto [at, inserted] =
      members_.emplace(id, Member{id, rank, incarnation, connection, true, std::move(pidfd)});
  assert(inserted);
  return at->second;
}

MemberId Membership::free_slot() const {
  const auto& slots = control().members;
  MemberId recycled = core::kMaxMembers;
  for (MemberId id = 0; id < core::kMaxMembers; ++id) {
    const auto status = core::status_of(slots[id]);
    if (status.state == MemberState::empty) return id;
    // A slot is used again only when none is fresh, and its process is known to be gone from it.
    if (status.gone() && status.cause != LossCause::absent && !members_.contains(id) &&
        (recycled == core::kMaxMembers || status.incarnation < core::incarnation_of(slots[recycled])))
      recycled = id;
  }
  if (recycled != core::kMaxMembers) return recycled;
  throw Error(ErrorCode::out_of_memory,
              fmt::format("the job has {} members on this host, no more fit", core::kMaxMembers),
              "start fewer ranks on this host");
}

Member* Membership::find(MemberId id) noexcept {
  auto at = members_.find(id);
  return at == members_.end() ? nullptr : &at->second;
}

Member* Membership::find_by_connection(std::uint64_t connection) noexcept {
  for (auto& [id, member] : members_)
    if (member.connection == connection) return &member;
  return nullptr;
}

bool Membership::begins_anew(int rank, int size) const noexcept {
  if (connected_ != 0 || size_ == 0) return false;
  return size != size_ || (rank >= 0 && rank < size_ && rank_has_joined_[static_cast<std::size_t>(rank)]);
}

bool Membership::all_ranks_have_joined() const noexcept {
  for (int rank = 0; rank < size_; ++rank)
    if (!has_joined(rank) && !absent_.contains(rank)) return false;
  return true;
}

void Membership::will_not_come(int rank, core::ProcessEnd end, std::uint64_t launcher) {
  may_come(rank);
  auto& absent = absent_[rank];
  absent = {end, launcher, std::nullopt};
  if (rank < size_ && !has_joined(rank)) show(rank, absent);
}

void Membership::may_come(int rank) noexcept {
  const auto at = absent_.find(rank);
  if (at == absent_.end()) return;
  take_back(at->second);
  absent_.erase(at);
}

void Membership::forget_launcher(std::uint64_t launcher) noexcept {
  for (auto at = absent_.begin(); at != absent_.end();) {
    const bool said = at->second.launcher == launcher;
    if (said) take_back(at->second);
    at = said ? absent_.erase(at) : std::next(at);
  }
}

// Like a member that died at once, so that those who wait need to look in one place only.
void Membership::show(int rank, Absent& absent) {
  const MemberId id = free_slot();
  auto& slot = control().members[id];
  const auto incarnation = static_cast<std::uint16_t>(core::incarnation_of(slot) + 1);
  slot.rank.store(static_cast<std::uint32_t>(rank), std::memory_order_relaxed);
  slot.died_at_ns.store(base::monotonic_ns(), std::memory_order_relaxed);
  slot.ended.store(1, std::memory_order_relaxed);
  slot.process_end.store(absent.end.encode(), std::memory_order_relaxed);
  slot.status.store(MemberStatus{MemberState::dead, LossCause::absent, incarnation}.encode(),
                    std::memory_order_release);
  absent.slot = id;
  raise_alarm();
}

void Membership::take_back(Absent& absent) noexcept {
  if (!absent.slot) return;
  auto& slot = control().members[*absent.slot];
  slot.status.store(MemberStatus{MemberState::empty, LossCause::none, core::incarnation_of(slot)}.encode(),
                    std::memory_order_release);
  absent.slot.reset();
}

std::string Membership::describe_absent() const {
  std::string text;
  for (const auto& [rank, absent] : absent_) {
    if (rank >= size_ || has_joined(rank)) continue;
    if (!text.empty()) text += "; ";
    text += fmt::format("rank {} {} before it joined", rank, describe(absent.end));
  }
  return text;
}

void Membership::leave(MemberId id) {
  auto* member = find(id);
  if (member == nullptr || !member->connected) return;
  auto& slot = control().members[id];
  // The member has normally done so itself. Waiters are woken in any case: nobody may wait for it any more.
  if (!core::change_state(slot, MemberState::alive, MemberState::left))
    core::change_state(slot, MemberState::joining, MemberState::left);
  members_.erase(id);
  --connected_;
  last_one_left_ = true;
  raise_alarm();
}

void Membership::died(MemberId id, LossCause cause) {
  auto* member = find(id);
  if (member == nullptr || !member->connected) return;
  member->connected = false;
  --connected_;
  auto& slot = control().members[id];
  // Who stopped its lifeline in good order and was then cut off has left.
  last_one_left_ = core::state_of(slot) == MemberState::left;
  if (core::mark_dead(slot, cause, base::monotonic_ns())) raise_alarm();
}

std::size_t Membership::pidfds() const noexcept {
  return static_cast<std::size_t>(std::count_if(members_.begin(), members_.end(), [](const auto& entry) {
    return static_cast<bool>(entry.second.pidfd);
  }));
}

void Membership::close_lingering_pidfds() noexcept {
  for (auto& [id, member] : members_)
    if (!member.connected) member.pidfd.reset();
}

void Membership::process_ended(MemberId id) {
  if (members_.contains(id)) {
    auto& slot = control().members[id];
    slot.ended.store(1, std::memory_order_release);
    base::futex_wake(slot.ended);
  }
  members_.erase(id);
}

void Membership::declare_broker_lost() noexcept {
  if (!control_mapping_) return;
  control().broker_lost.store(1, std::memory_order_release);
  raise_alarm();
}

void Membership::raise_alarm() noexcept {
  control().alarm.fetch_add(1, std::memory_order_acq_rel);
  base::futex_wake(control().alarm);
}

}  // namespace tugline::broker

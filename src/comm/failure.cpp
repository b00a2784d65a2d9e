// SPDX-License-Identifier: Apache-2.0
// How a communicator learns that it cannot go on, tells the others, and words it for the user.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/futex.h"
#include "base/settings.h"
#include "broker/process_status.h"
#include "comm/late.h"
#include "comm/same_settings.h"
#include "comm/state.h"

namespace tugline::comm {
namespace {

std::string_view text_of(core::LossCause cause) noexcept {
  switch (cause) {
    case core::LossCause::none:
      return "left the job";
    case core::LossCause::lifeline:
      return "died (its lifeline was released by the kernel)";
    case core::LossCause::pidfd:
      return "died (its process ended)";
    case core::LossCause::socket:
      return "died (its connection to the broker ended)";
    case core::LossCause::core_dump:
      return "died (it is writing a core file)";
    case core::LossCause::heartbeat:
      return "stopped ticking";
    case core::LossCause::removed:
      return "was removed";
    case core::LossCause::absent:
      return "ended before it joined";
  }
  return "is gone";
}

/// Zero-terminated, cut to fit.
template <std::size_t N>
void put_text(char (&to)[N], std::string_view text) noexcept {
  const auto length = text.copy(to, N - 1);
  to[length] = '\0';
}

bool matters(const Epoch& epoch, std::uint32_t rank, const Pending& pending,
             core::MemberState standing) noexcept {
  if (standing == core::MemberState::alive) return false;
  if (pending.peer >= 0)
    return standing == core::MemberState::dead || static_cast<std::uint32_t>(pending.peer) == rank;
  if (pending.sequence == 0) return standing == core::MemberState::dead;
  const auto finished = epoch.bank.progress(rank).finished.load(std::memory_order_acquire);
  return static_cast<std::int64_t>(finished - pending.sequence) < 0;
}

}  // namespace

int CommunicatorState::member_of(std::uint32_t original) const noexcept {
  if (!identity_.members.empty()) return static_cast<int>(identity_.members[original]);
  return static_cast<int>(current()->board->get().members[original].load(std::memory_order_acquire)) - 1;
}

// alive (also when it has not come yet), left or dead.
core::MemberState CommunicatorState::standing(std::uint32_t original) const noexcept {
  if (const int member = member_of(original); member >= 0) {
    const auto status = core::status_of(control_->members[member]);
    return status.gone() ? status.state : core::MemberState::alive;
  }
  // Not on the board yet: it may have died on its way here, after it joined the job.
  auto found = core::MemberState::alive;
  for (const auto& slot : control_->members) {
    const auto status = core::status_of(slot);
    if (status.state == core::MemberState::empty || slot.rank.load(std::memory_order_relaxed) != original)
      continue;
    if (!status.gone()) return core::MemberState::alive;
    found = status.state;
  }
  return found;
}

bool CommunicatorState::may_store(std::uint32_t original) const noexcept {
  const int member = member_of(original);
  if (member < 0) return false;
  const auto& slot = control_->members[member];
  const auto state = core::status_of(slot).state;
  if (state == core::MemberState::left) return false;  // nobody leaves from within an operation
  if (state != core::MemberState::dead) return true;
  if (slot.ended.load(std::memory_order_acquire) != 0) return false;
  if (control_->broker_lost.load(std::memory_order_acquire) != 0) return false;
  // What it takes to give back a large process's memory, or to write its core file, nobody has to wait for.
  const auto own_space = broker::own_identity().pid_namespace;
  const bool visible = own_space != 0 && slot.pid_namespace.load(std::memory_order_relaxed) == own_space;
  return !visible || broker::can_run_its_code(slot.pid.load(std::memory_order_relaxed));
}

// The slot that says that a rank ended before it joined; none when it has joined or may still come.
const core::MemberSlot* CommunicatorState::absence_of(std::uint32_t original) const noexcept {
  for (const auto& slot : control_->members)
    if (core::status_of(slot).cause == core::LossCause::absent &&
        slot.rank.load(std::memory_order_relaxed) == original)
      return &slot;
  return nullptr;
}

// What can be said of a rank of the present epoch that no member of the job is; empty when one is.
std::string CommunicatorState::not_yet_joined(std::int32_t rank) const {
  const auto epoch = current();
  if (rank < 0 || rank >= static_cast<std::int32_t>(epoch->size)) return {};
  const auto original = epoch->originals[static_cast<std::size_t>(rank)];
  if (member_of(original) >= 0) return {};
  for (const auto& slot : control_->members)
    if (core::state_of(slot) != core::MemberState::empty &&
        slot.rank.load(std::memory_order_relaxed) == original)
      return {};
  return fmt::format(
      "; rank {} has not joined the job (only of ranks that `tugline run` started is it known when they end "
      "first)",
      rank);
}

// One of the two has not got beyond the board. Where it is lost, the others may go on without it.
Status CommunicatorState::settings_status(const Epoch& epoch) const noexcept {
  const auto different = different_settings(epoch.board->get());
  if (!different) return {};
  const auto rank_of = [&](std::uint32_t original) {
    return std::find(epoch.originals.begin(), epoch.originals.end(), original) - epoch.originals.begin();
  };
  for (const auto original : different->ranks)
    if (rank_of(original) == static_cast<std::ptrdiff_t>(epoch.size)) return {};
  return {ErrorCode::mismatch, static_cast<std::int32_t>(rank_of(different->other_than(identity_.rank)))};
}

// A rank that is gone ends what waits for it, not what it has finished itself: all that it contributes to an
// operation lies in memory before it reports the operation finished, so the others can finish it too. A clean
// good-bye after the last operation is therefore no error to those who are still in it; who has left cannot
// hurt messages among others.
Status CommunicatorState::failure_of(const Epoch& epoch, const Pending& pending) const noexcept {
  // First: whatever else is found may follow from that.
  if (const Status different = settings_status(epoch); !different.ok()) return different;
  const auto& failure = epoch.bank.header().failure;
  if (failure.state.load(std::memory_order_acquire) == 2) {
    if (failure.kind == FailureKind::aborted)
      return {ErrorCode::aborted, static_cast<std::int32_t>(failure.rank[0])};
    const auto other = failure.rank[0] == epoch.rank ? failure.rank[1] : failure.rank[0];
    return {ErrorCode::mismatch, static_cast<std::int32_t>(other)};
  }
  // Before the ranks: whoever has been told of the broker's end may have left since.
  if (control_->broker_lost.load(std::memory_order_acquire) != 0) return {ErrorCode::broker_lost};
  // The dead before those who left: these may have left because of the others.
  Status left;
  for (std::uint32_t rank = 0; rank < epoch.size; ++rank) {
    const auto found = rank == epoch.rank ? core::MemberState::alive : standing(epoch.originals[rank]);
    if (!matters(epoch, rank, pending, found)) continue;
    const Status lost{ErrorCode::peer_lost, static_cast<std::int32_t>(rank)};
    if (found == core::MemberState::dead) return lost;
    if (left.ok()) left = lost;
  }
  if (!left.ok()) return left;
  // It waits on another thread.
  if (client_->standing() != broker::Standing::member) return {ErrorCode::invalid_usage};
  if (core::is_gone(control_->members[client_->member()]))
    return {ErrorCode::stale_epoch, static_cast<std::int32_t>(epoch.rank)};
  return {};
}

Status CommunicatorState::look_at_alarm(const Pending& pending) const noexcept {
  // In this order: what made a rank go to its agreement is to be seen here too, and says more.
  const Status passed = passed_over(*epoch_, pending);
  const Status failure = failure_of(*epoch_, pending);
  return failure.ok() ? passed : failure;
}

// This very one: faster ranks may be at the next one while this rank still reads its decision.
bool CommunicatorState::agreement_is_mismatched(const Epoch& epoch) const noexcept {
  const auto& failure = epoch.bank.header().failure;
  if (failure.state.load(std::memory_order_acquire) != 2 || failure.kind == FailureKind::aborted)
    return false;
  const auto mine = describe_agreement(agreement_->posted());
  return failure.descriptor[0] == mine || failure.descriptor[1] == mine;
}

void CommunicatorState::raise_alarm() noexcept {
  control_->alarm.fetch_add(1, std::memory_order_seq_cst);
  base::futex_wake(control_->alarm);
}

void CommunicatorState::ring_everyone(const Epoch& epoch) noexcept {
  for (std::uint32_t rank = 0; rank < epoch.size; ++rank)
    if (rank != epoch.rank) ring(epoch.board->get().doorbells[epoch.originals[rank]]);
}

// The first one to raise a failure words it for all.
template <class Fill>
void CommunicatorState::raise_failure(FailureKind kind, const Fill& fill) noexcept {
  const auto epoch = current();
  auto& failure = epoch->bank.header().failure;
  std::uint32_t none = 0;
  if (failure.state.compare_exchange_strong(none, 1, std::memory_order_acq_rel)) {
    failure.kind = kind;
    failure.rank[0] = epoch->rank;
    fill(failure);
    failure.state.store(2, std::memory_order_release);
  }
  raise_alarm();
  ring_everyone(*epoch);
}

void CommunicatorState::raise_mismatch(FailureKind kind, std::uint64_t sequence,
                                       const Difference& difference) noexcept {
  raise_failure(kind, [&](FailureRecord& failure) {
    failure.sequence = sequence;
    failure.rank[1] = static_cast<std::uint32_t>(difference.other);
    for (std::size_t i = 0; i < 2; ++i) {
      failure.descriptor[i] = difference.calls[i];
      put_text(failure.communicator[i], difference.communicators[i]);
    }
  });
}

void CommunicatorState::raise_mismatch(FailureKind kind, const CallDifference& difference) noexcept {
  raise_mismatch(kind, difference.sequence, {difference.peer, {difference.mine, difference.theirs}});
}

void CommunicatorState::remember(const Status& status) noexcept {
  std::lock_guard lock(status_mutex_);
  if (!status_.ok()) return;
  status_ = status;
  failed_.store(true, std::memory_order_release);
}

Status CommunicatorState::status() const noexcept {
  // Before the lock, which a thread that is not there may hold in a forked child.
  if (client_->standing() != broker::Standing::member) return {ErrorCode::invalid_usage};
  {
    std::lock_guard lock(status_mutex_);
    if (!status_.ok()) return status_;
  }
  return failure_of(*current(), {});
}

void CommunicatorState::check() const {
  client_->require_member("check()");
  if (Status found = status(); !found.ok()) throw to_error(found, Call{});
}

void CommunicatorState::abort(std::string_view reason) {
  client_->require_member("abort()");
  raise_failure(FailureKind::aborted, [&](FailureRecord& failure) { put_text(failure.reason, reason); });
  remember({ErrorCode::aborted, static_cast<std::int32_t>(current()->rank)});
}

Error CommunicatorState::to_error(const Status& status, const Call& call, std::string_view operation) const {
  const auto epoch = current();
  ErrorContext context;
  context.operation = !operation.empty() ? std::string(operation)
                      : call.collective == core::Collective::barrier || call.count != 0
                          ? to_text(describe(call), call.direction)
                          : std::string(core::name_of(call.collective));
  context.communicator = fmt::format("{} (epoch {})", identity_.name, epoch->path);
  context.rank = static_cast<int>(epoch->rank);
  context.peer = status.peer;
  context.native_code = status.native_code;
  const auto& failure = epoch->bank.header().failure;
  const bool recorded = failure.state.load(std::memory_order_acquire) == 2;
  switch (status.code) {
    case ErrorCode::mismatch: {
      if (!settings_status(*epoch).ok())
        return settings_error(describe(epoch->board->get(), *different_settings(epoch->board->get())),
                              std::move(context));
      if (!recorded) break;
      const bool message = failure.kind == FailureKind::pair_mismatch;
      // A message is compared by its receiver, who is the first side then.
      auto direction = [message](int side) {
        return !message    ? Call::Direction::none
               : side == 0 ? Call::Direction::receive
                           : Call::Direction::send;
      };
      auto text = [&](int side) {
        const std::string_view where = failure.communicator[side];
        return fmt::format("rank {} called {}{}{}", failure.rank[side],
                           to_text(failure.descriptor[side], direction(side)),
                           where.empty() ? "" : " of communicator ", where);
      };
      return Error(
          status.code,
          fmt::format("{}, {} as {} {}", text(0), text(1), message ? "message" : "operation",
                      failure.sequence),
          "make the same calls in the same order on all ranks, with equal count, type, operator and root",
          std::move(context));
    }
    case ErrorCode::aborted:
      return Error(
          status.code,
          recorded ? fmt::format("rank {} called abort(): {}", status.peer, failure.reason)
                   : fmt::format("rank {} gave this step up: an operation failed there, and it called "
                                 "agree()",
                                 status.peer),
          "call agree() on all ranks to go on with this communicator, or end the job", std::move(context));
    case ErrorCode::peer_lost: {
      if (status.peer < 0 || status.peer >= static_cast<int>(epoch->size)) break;
      const int member = member_of(epoch->originals[static_cast<std::size_t>(status.peer)]);
      std::string how = "left the job or died before its first operation";
      const auto* absent =
          member < 0 ? absence_of(epoch->originals[static_cast<std::size_t>(status.peer)]) : nullptr;
      if (absent != nullptr)
        return Error(status.code,
                     fmt::format("rank {} {} before it joined", status.peer,
                                 broker::describe(core::ProcessEnd::decode(
                                     absent->process_end.load(std::memory_order_relaxed)))),
                     "see what that rank wrote before it ended; or call agree() and go on without it",
                     std::move(context));
      if (member >= 0) {
        const auto& slot = control_->members[member];
        how = text_of(core::cause_of(slot));
        if (core::state_of(slot) == core::MemberState::dead)
          how += fmt::format(
              ", noticed {:.1f} ms ago",
              static_cast<double>(base::monotonic_ns() - slot.died_at_ns.load(std::memory_order_relaxed)) /
                  1e6);
      }
      return Error(status.code, fmt::format("rank {} {}", status.peer, how),
                   "call agree() on all survivors and go on with the smaller communicator",
                   std::move(context));
    }
    case ErrorCode::stale_epoch:
      return Error(status.code,
                   status.peer >= 0
                       ? fmt::format("rank {} was removed from this communicator", status.peer)
                       : fmt::format("the call belongs to an earlier epoch, the communicator is in epoch {}",
                                     epoch->path),
                   status.peer >= 0 ? "join again as a new member"
                                    : "make the call (or capture the graph) again in the new epoch",
                   std::move(context));
    case ErrorCode::broker_lost:
      return Error(status.code, "the broker of this job is gone",
                   "save what you need and start the job again", std::move(context));
    case ErrorCode::timed_out: {
      const auto stopped = stopped_ranks(*control_, epoch->board->get(), *epoch);
      ShownWait wait;
      wait.communicator = identity_.name;
      wait.peer = status.peer;
      if (status.peer >= 0) wait.peer_member = place_.member_of(status.peer);
      const auto cycle = find_cycle(*control_, place_.member, wait);
      const auto remedy =
          !stopped.empty() ? "let the stopped process go on (kill -CONT PID) or end it, then call agree()"
          : !cycle.empty() ? "make calls of several communicators, and messages, in an order that "
                             "lets every rank go on: see who waits for whom"
                           : "look why that rank is late, or raise TUGLINE_FAIL_AFTER";
      return Error(
          status.code, cycle.empty() ? default_remedy(status.code) : Remedy::fix_call,
          fmt::format("no progress for TUGLINE_FAIL_AFTER ({} ms) in operation {}, waiting for {}{}{}{}",
                      base::settings().fail_after.count(), status.detail,
                      status.peer < 0 ? "several ranks" : fmt::format("rank {}", status.peer),
                      wait_story(place_, wait), stopped.empty() ? "" : "; ", stopped),
          remedy, std::move(context));
    }
    case ErrorCode::invalid_usage:
      if (client_->standing() != broker::Standing::member) return client_->not_a_member(std::move(context));
      return Error(status.code,
                   "another operation of this communicator is running on another thread or stream",
                   "use one stream per communicator, or order its streams by events", std::move(context));
    default:
      break;
  }
  return Error(status.code, fmt::format("the operation failed (detail {})", status.detail),
               "report this with the log", std::move(context));
}

}  // namespace tugline::comm

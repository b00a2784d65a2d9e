// SPDX-License-Identifier: Apache-2.0
// agree(): the end of a step. Posts, waits for the decided record, obeys it, and enters the next epoch if it
// must.
#include <fmt/format.h>

#include <utility>

#include "comm/state.h"

namespace tugline::comm {
namespace {

constexpr std::string_view kName = "agree()";

}  // namespace

core::Decision CommunicatorState::decide(const Family& below, bool complete, core::RankSet& gone_set,
                                         Status& broker) {
  Epoch& epoch = *epoch_;
  auto refresh = [&] {
    for (std::uint32_t rank = 0; rank < epoch.size; ++rank)
      if (standing(epoch.originals[rank]) != core::MemberState::alive) gone_set.add(epoch.originals[rank]);
    if (control_->broker_lost.load(std::memory_order_acquire) != 0) broker = {ErrorCode::broker_lost};
  };
  refresh();
  if (held_decision_) return *std::exchange(held_decision_, std::nullopt);
  // Open: the last call ended in a mismatch, and its post stands.
  const bool left_open = agreement_->open();
  if (!left_open) {
    note_calls(epoch, ++settlements_);
    for (const auto& state : below) note_calls(*state->epoch_, ++state->settlements_);
    agreement_->post(complete);
  }
  if (anybody_sleeps(epoch.bank.header().sleepers)) ring_everyone(epoch);
  // They may wait for this rank in an operation that it has passed over.
  for (const auto& state : below)
    if (anybody_sleeps(state->epoch_->bank.header().sleepers)) state->ring_everyone(*state->epoch_);

  core::Decision decision;
  bool mismatched = false;
  auto poll = [&] {
    // Those who found the difference may have left by now: their going must not turn it into a loss.
    if (mismatched) return Poll::blocked;
    // Without a broker nobody new can be told apart from somebody late: what is open ends as aborted.
    decision = broker.ok() ? agreement_->advance(gone_set) : agreement_->abort(gone_set);
    return decision.verdict != core::Verdict::undecided ? Poll::done : Poll::blocked;
  };
  // Somebody is in an operation that this rank has passed over.
  auto mismatch = [&]() -> Status {
    mismatched = complete && agreement_is_mismatched(epoch);
    if (!mismatched) return {};
    return {ErrorCode::mismatch, static_cast<std::int32_t>(epoch.bank.header().failure.rank[0])};
  };
  auto alarm = [&] {
    Status status = settings_status(epoch);
    if (!status.ok()) return status;
    status = agreement_passed_over(epoch);
    if (status.code == ErrorCode::mismatch)
      raise_passed_over(agreement_->posted(), status, describe_agreement(agreement_->posted()));
    if (const Status recorded = mismatch(); !recorded.ok()) status = recorded;
    if (status.ok()) refresh();
    return status;
  };
  auto subject = [&]() -> WaitSubject {
    WaitSubject about;
    about.what = "post for agreement";
    about.call = describe_agreement(agreement_->posted());
    about.sequence = agreement_->last().agreement + 1;
    const auto missing = agreement_->missing();
    for (std::uint32_t rank = 0; rank < epoch.size && about.peer < 0; ++rank)
      if (missing.has(epoch.originals[rank])) about.peer = static_cast<std::int32_t>(rank);
    return about;
  };
  Status waited = wait(place_, poll, alarm, subject);
  // The other one writes its record before it posts or leaves, so a decision that depends on that shows it.
  // It is an error on every rank; the decision is for the next call, as on the others. A commit is nobody's
  // then: all have posted complete before somebody saw that their calls differ, see compare_calls().
  const bool committed = decision.verdict == core::Verdict::committed;
  if (waited.ok()) {
    waited = mismatch();
    if (!waited.ok() && !committed) held_decision_ = decision;
  }
  // Whoever decided may have been the only one awake.
  if (anybody_sleeps(epoch.bank.header().sleepers)) ring_everyone(epoch);
  if (!waited.ok()) {
    remember(waited);
    throw to_error(waited, Call{}, kName);
  }
  if (committed && left_open && agreement_is_mismatched(epoch)) return decide(below, false, gone_set, broker);
  if (committed) compare_calls(below, decision);
  return decision;
}

Outcome CommunicatorState::agree() {
  client_->require_member(kName);
  const Call none;
  const Family below = descendants();
  drain_requests();
  for (const auto& state : below) state->drain_requests();
  const HeldFamily held(*this, below, kName);
  const auto epoch = epoch_;
  core::RankSet gone_set;
  Status broker;
  const auto decision = decide(below, !family_failed(), gone_set, broker);
  if (agreement_->removed()) {
    const Status stale{ErrorCode::stale_epoch, static_cast<std::int32_t>(epoch->rank)};
    remember(stale);
    throw to_error(stale, none, kName);
  }
  if (!broker.ok()) {
    remember(broker);
    throw to_error(broker, none, kName);
  }

  std::vector<LostRank> lost;
  std::vector<std::uint32_t> survivors;
  core::RankSet lost_members;
  for (std::uint32_t rank = 0; rank < epoch->size; ++rank) {
    const auto original = epoch->originals[rank];
    if (!decision.lost.has(original)) {
      survivors.push_back(original);
      continue;
    }
    const int member = member_of(original);
    if (member >= 0) lost_members.add(static_cast<std::uint32_t>(member));
    const Error why = to_error({ErrorCode::peer_lost, static_cast<std::int32_t>(rank)}, none);
    lost.push_back({static_cast<int>(rank), why.what_failed()});
  }
  const bool aborted = decision.verdict == core::Verdict::aborted;
  // After an abort ranks may have come to different points of different operations: a fresh bank puts them in
  // step.
  if (aborted || !lost.empty()) {
    enter_next_epoch(std::move(survivors));
    for (const auto& child : children_)
      if (auto state = child.lock()) state->absorb(lost_members, aborted);
  }
  std::erase_if(children_, [](const auto& child) { return child.expired(); });
  const bool changed = !lost.empty();
  return Outcome(!aborted, changed, decision.agreement, generation(), std::move(lost));
}

}  // namespace tugline::comm

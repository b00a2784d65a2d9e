// SPDX-License-Identifier: Apache-2.0
// A communicator, those it was split from and those split from it: one agreement covers it and all of its
// descendants. So a rank in an operation of one of them waits in vain for a rank in the agreement of an
// ancestor, and the other way round; both are told.
#include <algorithm>

#include "comm/state.h"

namespace tugline::comm {

CommunicatorState::Family CommunicatorState::descendants() const {
  Family all;
  for (const auto& child : children_) {
    auto state = child.lock();
    if (!state) continue;
    all.push_back(state);
    for (auto& below : state->descendants()) all.push_back(std::move(below));
  }
  return all;
}

bool CommunicatorState::family_failed() const noexcept {
  if (failed_.load(std::memory_order_acquire)) return true;
  for (const auto& child : children_)
    if (auto state = child.lock(); state && state->family_failed()) return true;
  return false;
}

CommunicatorState& CommunicatorState::ancestor(std::uint64_t generations_up) noexcept {
  CommunicatorState* at = this;
  for (; generations_up != 0; --generations_up) at = at->identity_.parent.get();
  return *at;
}

std::uint32_t CommunicatorState::original_above(std::uint32_t original,
                                                std::uint64_t generations_up) noexcept {
  for (std::uint64_t up = 0; up < generations_up; ++up)
    original = ancestor(up).identity_.parent_originals[original];
  return original;
}

// A rank that has come to an agreement that this rank has not come to, without having been in the operation,
// will never be in it. When an operation failed there, no call is to blame. The status says how many
// generations up the agreement is.
Status CommunicatorState::passed_over(const Epoch& epoch, const Pending& pending) const noexcept {
  for (std::uint32_t rank = 0; rank < epoch.size; ++rank) {
    if (rank == epoch.rank || (pending.peer >= 0 && static_cast<std::uint32_t>(pending.peer) != rank))
      continue;
    std::uint64_t generations_up = 0;
    const auto ahead = ahead_of_this_rank(epoch.originals[rank], generations_up);
    if (ahead == core::Agreement::Ahead::no) continue;
    // Read after the post: it was written before.
    const auto finished = epoch.bank.progress(rank).finished.load(std::memory_order_acquire);
    if (pending.peer < 0 && static_cast<std::int64_t>(finished - pending.sequence) >= 0) continue;
    const auto code = ahead == core::Agreement::Ahead::failed ? ErrorCode::aborted : ErrorCode::mismatch;
    return {code, static_cast<std::int32_t>(rank), 0, generations_up};
  }
  return {};
}

// The same for this communicator's agreement, which waits for a rank that is in an ancestor's.
Status CommunicatorState::agreement_passed_over(const Epoch& epoch) const noexcept {
  if (!identity_.parent) return {};
  for (std::uint32_t rank = 0; rank < epoch.size; ++rank) {
    const auto original = epoch.originals[rank];
    std::uint64_t generations_up = 0;
    const auto ahead = ahead_of_this_rank(original, generations_up);
    // Looked at after the ancestor's post: its own post, if it made one, was written before.
    if (ahead == core::Agreement::Ahead::no || !agreement_->missing().has(original)) continue;
    const auto code = ahead == core::Agreement::Ahead::failed ? ErrorCode::aborted : ErrorCode::mismatch;
    return {code, static_cast<std::int32_t>(rank), 0, generations_up};
  }
  return {};
}

core::Agreement::Ahead CommunicatorState::ahead_of_this_rank(std::uint32_t original,
                                                             std::uint64_t& generations_up) const noexcept {
  for (const CommunicatorState* at = this;; at = at->identity_.parent.get(), ++generations_up) {
    const auto ahead = at->agreement_->ahead(original);
    if (ahead != core::Agreement::Ahead::no || !at->identity_.parent) return ahead;
    original = at->identity_.parent_originals[original];
  }
}

// Those who wait here and those who wait in the agreement read different banks: each gets the record.
void CommunicatorState::raise_passed_over(std::uint64_t sequence, const Status& status,
                                          const Descriptor& mine) noexcept {
  if (!settings_status(*current()).ok()) return;  // all see that on the board
  CommunicatorState& above = ancestor(status.detail);
  const std::uint64_t agreement = above.agreement_->posted() + 1;
  if (status.detail != 0) {
    const std::uint32_t original =
        original_above(current()->originals[static_cast<std::uint32_t>(status.peer)], status.detail);
    const auto& originals = above.current()->originals;
    const Descriptor as_seen_above =
        is_agreement(mine) ? describe_agreement(mine.count, kOfDescendant) : mine;
    const auto peer = std::find(originals.begin(), originals.end(), original) - originals.begin();
    above.raise_mismatch(FailureKind::mismatch, sequence,
                         {static_cast<std::int32_t>(peer),
                          {as_seen_above, describe_agreement(agreement)},
                          {identity_.name, {}}});
  }
  raise_mismatch(FailureKind::mismatch, sequence,
                 {status.peer,
                  {mine, describe_agreement(agreement, static_cast<std::uint32_t>(status.detail))},
                  {{}, status.detail != 0 ? std::string_view(above.identity_.name) : std::string_view{}}});
}

// Everybody has posted complete: calls that nobody has compared so far are compared now, here and in all that
// the agreement settles. Throws mismatch, alike on all ranks of the communicator in which they differ; others
// of the family go on, and find the difference at their next agreement, which it makes `aborted`.
void CommunicatorState::compare_calls(const Family& below, const core::Decision& decision) {
  const auto number = agreement_->posted();
  std::optional<CallDifference> found =
      compare_notes(*epoch_, settlements_, decision.lost, describe_agreement(number));
  if (found) raise_mismatch(FailureKind::mismatch, *found);
  for (const auto& child : below) {
    std::uint64_t up = 0;
    for (const auto* at = child.get(); at != this; at = at->identity_.parent.get()) ++up;
    core::RankSet lost;
    for (const auto original : child->epoch_->originals)
      if (decision.lost.has(child->original_above(original, up))) lost.add(original);
    const auto theirs = compare_notes(*child->epoch_, child->settlements_, lost,
                                      describe_agreement(number, static_cast<std::uint32_t>(up)));
    if (!theirs) continue;
    child->raise_mismatch(FailureKind::mismatch, *theirs);
    child->remember({ErrorCode::mismatch, theirs->peer});
    if (found) continue;
    found = theirs;
    const auto original =
        child->original_above(child->epoch_->originals[static_cast<std::uint32_t>(theirs->peer)], up);
    const auto& originals = epoch_->originals;
    found->peer = static_cast<std::int32_t>(std::find(originals.begin(), originals.end(), original) -
                                            originals.begin());
    raise_mismatch(FailureKind::mismatch, theirs->sequence,
                   {found->peer, {theirs->mine, theirs->theirs}, {child->name(), child->name()}});
  }
  if (!found) return;
  const Status status{ErrorCode::mismatch, found->peer};
  remember(status);
  throw to_error(status, Call{}, "agree()");
}

// A decision of an ancestor ends this communicator's epoch too, if it touches it. Everything starts from the
// ancestor's decision then: agreements of this communicator's own may have been overtaken at different
// points.
void CommunicatorState::absorb(const core::RankSet& lost_members, bool aborted) {
  const auto is_lost = [&](broker::MemberId member) { return lost_members.has(member); };
  if (aborted || std::any_of(identity_.members.begin(), identity_.members.end(), is_lost)) {
    const auto& above = identity_.parent->current()->originals;
    std::vector<std::uint32_t> survivors;
    core::RankSet lost;
    for (std::uint32_t original = 0; original < identity_.size; ++original) {
      if (std::find(above.begin(), above.end(), identity_.parent_originals[original]) != above.end())
        survivors.push_back(original);
      else
        lost.add(original);
    }
    enter_first_epoch(std::move(survivors));
    agreement_->exclude(lost);
    held_decision_.reset();
  }
  for (const auto& child : children_)
    if (auto state = child.lock()) state->absorb(lost_members, aborted);
}

// Operations of split communicators that still run on streams belong to the step: they end first, in failure
// if not otherwise, for a rank that is waited for in vain is seen to be in this agreement or gone.
CommunicatorState::HeldFamily::HeldFamily(CommunicatorState& state, const Family& below,
                                          std::string_view operation)
    : state_(state), below_(below) {
  if (state_.busy_.exchange(true, std::memory_order_acquire))
    throw state_.to_error({ErrorCode::invalid_usage}, Call{}, operation);
  auto poll = [&] {
    while (held_ < below_.size() && !below_[held_]->busy_.exchange(true, std::memory_order_acquire)) ++held_;
    return held_ == below_.size() ? Poll::done : Poll::blocked;
  };
  auto alarm = [] { return Status{}; };
  auto subject = [] {
    WaitSubject about;
    about.what = "end of this rank's operations of a split communicator, before the agreement";
    return about;
  };
  if (const Status waited = wait(state_.place_, poll, alarm, subject); !waited.ok()) {
    release();
    throw state_.to_error(waited, Call{}, operation);
  }
}

CommunicatorState::HeldFamily::~HeldFamily() {
  release();
}

void CommunicatorState::HeldFamily::release() noexcept {
  for (std::size_t i = 0; i < held_; ++i) below_[i]->end_exclusive();
  state_.end_exclusive();
}

}  // namespace tugline::comm

// SPDX-License-Identifier: Apache-2.0
// What a run waits for: for those who decide whether it may go on waiting, and for reports.
#include "comm/plan_run.h"

#include <algorithm>

#include "comm/protocol.h"

namespace tugline::comm {

std::int32_t PlanRun::peer_waited_for() const noexcept {
  if (blocked_->peer != core::kEveryone) return blocked_->peer;
  const auto expected = packet_flag(sequence_, fingerprint_);
  for (std::int32_t peer = 0; peer < plan_->ranks; ++peer)
    if (epoch_.bank.packet(static_cast<std::uint32_t>(peer), sequence_)
            .flag.load(std::memory_order_relaxed) != expected)
      return peer;
  return own_rank();
}

Pending PlanRun::pending() const noexcept {
  return {phase_ == Phase::fresh ? epoch_.sequence + 1 : sequence_};
}

WaitSubject PlanRun::subject() const {
  WaitSubject about;
  about.sequence = sequence_;
  about.call = descriptor_;
  // The first of those that are late.
  const auto first_behind = [this](const auto& has_come) {
    for (std::uint32_t rank = 0; rank < epoch_.size; ++rank)
      if (rank != epoch_.rank && !has_come(epoch_.bank.progress(rank)))
        return static_cast<std::int32_t>(rank);
    return -1;
  };
  if (phase_ != Phase::running && (sequence_ <= 1 || !plan_)) {
    about.what = "arrival in this epoch";
    about.peer = first_behind(
        [](const ProgressLine& line) { return line.present.load(std::memory_order_acquire) != 0; });
    about.expected = 1;
    return about;
  }
  if (phase_ == Phase::opening) {
    about.what = owner_gone_ ? "word of the owner of a buffer that the broker no longer holds" : "call";
    about.peer = static_cast<std::int32_t>(std::min(opened_, epoch_.size - 1));
    about.expected = sequence_;
    return about;
  }
  if (phase_ == Phase::entering && epoch_.known_called < needed_for(sequence_)) {
    about.what = "call";
    about.expected = needed_for(sequence_);
    about.peer = first_not_called(epoch_, about.expected);
    return about;
  }
  if (phase_ != Phase::running || blocked_ == nullptr) {
    about.what = "leave to reuse scratch";
    about.expected = sequence_ - kHalves;
    about.peer = first_behind([this](const ProgressLine& line) {
      const auto finished = line.finished.load(std::memory_order_acquire);
      return static_cast<std::int64_t>(finished - (sequence_ - kHalves)) >= 0;
    });
    return about;
  }
  if (visits_ && visits_->withdrawn() >= 0) {
    about.what = "word of a rank that has ended this operation early";
    about.peer = visits_->withdrawn();
    about.expected = sequence_;
    return about;
  }
  about.peer = peer_waited_for();
  if (blocked_->kind == core::StepKind::wait) {
    about.what = "flag";
    about.expected = base_ + blocked_->value;
    about.seen = &flag_here(blocked_->peer, blocked_->flag);
  } else {
    about.what = "packet";
    about.expected = packet_flag(sequence_, fingerprint_);
    about.seen = &epoch_.bank.packet(static_cast<std::uint32_t>(peer_waited_for()), sequence_).flag;
  }
  return about;
}

}  // namespace tugline::comm

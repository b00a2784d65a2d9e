// SPDX-License-Identifier: Apache-2.0
#include "membership.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "tugline/error.h"

namespace train_fashion {
namespace {

/// After these the communicator agrees and goes on; after all others it does not.
bool is_loss(const tugline::Error& error) noexcept {
  return error.code() == tugline::ErrorCode::peer_lost || error.code() == tugline::ErrorCode::stale_epoch;
}

}  // namespace

std::int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Membership::Membership(tugline::Communicator communicator)
    : communicator_(std::move(communicator)), members_(static_cast<std::size_t>(communicator_.size())) {
  std::iota(members_.begin(), members_.end(), 0);
}

void Membership::settle(std::uint64_t step, const std::function<void()>& work) {
  for (;;) {
    noticed_ns_ = 0;
    try {
      work();
    } catch (const tugline::Error& error) {
      if (!is_loss(error)) throw;
      loss_noticed();
    }
    const std::int64_t before = now_ns();
    const tugline::Outcome outcome = communicator_.agree();
    agreeing_ns_ += now_ns() - before;
    if (outcome.membership_changed()) take_over(outcome, step);
    if (outcome.committed()) return;
  }
}

void Membership::take_over(const tugline::Outcome& outcome, std::uint64_t step) {
  MembershipChange change;
  change.step = step;
  change.redone = !outcome.committed();
  change.size_after = communicator_.size();
  change.agreement = outcome.agreement();
  change.epoch = outcome.epoch();
  change.agreed_ns = now_ns();
  change.noticed_ns = noticed_ns_ != 0 ? noticed_ns_ : change.agreed_ns;
  for (const auto& lost : outcome.lost()) {
    change.lost.push_back({members_.at(static_cast<std::size_t>(lost.rank)), lost.reason});
  }
  std::erase_if(members_, [&](int member) {
    return std::any_of(change.lost.begin(), change.lost.end(),
                       [&](const auto& lost) { return lost.rank == member; });
  });
  changes_.push_back(std::move(change));
}

void Membership::loss_noticed() noexcept {
  if (noticed_ns_ == 0) noticed_ns_ = now_ns();
}

void Membership::operation_done() noexcept {
  if (!changes_.empty() && changes_.back().next_reduced_ns == 0) changes_.back().next_reduced_ns = now_ns();
}

}  // namespace train_fashion

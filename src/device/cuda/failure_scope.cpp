// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/failure_scope.h"

#include <mutex>
#include <utility>

namespace tugline::device::cuda {
namespace {

std::mutex& all_scopes() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

}  // namespace

FailureScope::FailureScope(std::shared_ptr<Cell> cell) : cell_(std::move(cell)) {
  cell_->word.store(kNeverFailed, std::memory_order_release);
}

void FailureScope::begin(Ticket ticket) {
  std::lock_guard lock(all_scopes());
  pending_.insert(ticket);
}

void FailureScope::finish(Ticket ticket, FailurePtr failure) {
  std::lock_guard lock(all_scopes());
  finish_locked(ticket, failure);
}

void FailureScope::finish_locked(Ticket ticket, const FailurePtr& failure) {
  if (auto found = pending_.find(ticket); found != pending_.end()) pending_.erase(found);
  // A failure that was inherited through an event may be known before an earlier one of the stream itself.
  if (failure != nullptr && ticket < failed_at_) {
    failed_at_ = ticket;
    failure_ = failure;
    cell_->word.store(ticket, std::memory_order_release);
  }
  settle_edges_locked();
}

void FailureScope::settle_edges_locked() {
  const Ticket open = pending_.empty() ? kNeverFailed : *pending_.begin();
  for (std::size_t i = 0; i < edges_.size();) {
    const bool failed = failed_at_ <= edges_[i].from;
    if (!failed && open <= edges_[i].from) {
      ++i;
      continue;
    }
    const Edge edge = std::move(edges_[i]);
    edges_[i] = std::move(edges_.back());
    edges_.pop_back();
    if (auto to = edge.to.lock()) to->finish_locked(edge.at, failed ? failure_ : nullptr);
  }
}

void FailureScope::add_dependent(Ticket ticket, const std::shared_ptr<FailureScope>& dependent, Ticket at) {
  if (dependent.get() == this) return;
  std::lock_guard lock(all_scopes());
  const bool failed = failed_at_ <= ticket;
  const bool open = !pending_.empty() && *pending_.begin() <= ticket;
  if (!failed && !open) return;
  dependent->pending_.insert(at);
  edges_.push_back({ticket, dependent, at});
  settle_edges_locked();
}

FailurePtr FailureScope::before(Ticket ticket) const {
  return ticket == 0 ? nullptr : up_to(ticket - 1);
}

FailurePtr FailureScope::up_to(Ticket ticket) const {
  std::lock_guard lock(all_scopes());
  return failed_at_ <= ticket ? failure_ : nullptr;
}

bool FailureScope::may_skip(Ticket ticket) const {
  std::lock_guard lock(all_scopes());
  return failed_at_ < ticket || (!pending_.empty() && *pending_.begin() < ticket);
}

bool FailureScope::settled() const {
  std::lock_guard lock(all_scopes());
  return pending_.empty() && edges_.empty();
}

void FailureScope::restart(FailurePtr failure) {
  std::lock_guard lock(all_scopes());
  failed_at_ = failure == nullptr ? kNeverFailed : 0;
  failure_ = std::move(failure);
  cell_->word.store(failed_at_, std::memory_order_release);
}

}  // namespace tugline::device::cuda

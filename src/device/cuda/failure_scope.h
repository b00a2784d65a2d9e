// SPDX-License-Identifier: Apache-2.0
// What has failed on a stream, and which later work that skips.
//
// Work gets tickets in the order in which it is enqueued. When a task fails, everything of its stream with a
// larger ticket is skipped, and so is what waits for it through events, until sync() has thrown the error and
// the stream goes on with a fresh scope. The device cannot look into host objects: it compares a ticket with
// a word in pinned memory. Only tasks of the host can fail here, so that a scope knows when nothing can fail
// any more, and then neither edges nor guards cost anything.
//
// Thread-safe: one lock for all scopes, since failures travel between them. Tasks are no hot path.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <vector>

#include "device/cuda/pinned.h"
#include "device/failure.h"

namespace tugline::device::cuda {

using Ticket = std::uint64_t;
constexpr Ticket kNeverFailed = std::numeric_limits<Ticket>::max();

class FailureScope : public std::enable_shared_from_this<FailureScope> {
 public:
  /// `cell`: pinned memory where a device looks at it.
  explicit FailureScope(std::shared_ptr<Cell> cell);

  /// Something with this ticket may fail until finish() was called for it.
  void begin(Ticket ticket);
  /// It ended; null is success. The failure reaches all scopes that depend on it before this returns.
  void finish(Ticket ticket, FailurePtr failure);
  /// `dependent` waits, with its ticket `at`, for this scope's work up to `ticket`: a failure there is its
  /// own.
  void add_dependent(Ticket ticket, const std::shared_ptr<FailureScope>& dependent, Ticket at);

  /// The failure that work with this ticket is skipped for, null if it may run.
  FailurePtr before(Ticket ticket) const;
  /// The failure at this ticket or before, null if there is none (yet).
  FailurePtr up_to(Ticket ticket) const;
  /// The first failure, null if there is none.
  FailurePtr first() const { return up_to(kNeverFailed - 1); }
  /// True when work with this ticket may yet have to be skipped: it must look at the word when it runs.
  bool may_skip(Ticket ticket) const;
  /// True when nothing is pending here and nobody depends on what is.
  bool settled() const;
  /// Holds the ticket after which work is skipped; for the device.
  const std::atomic<std::uint64_t>& word() const noexcept { return cell_->word; }
  /// A graph's scope before its next launch: failed from its first ticket on, or not at all.
  void restart(FailurePtr failure);

 private:
  struct Edge {
    Ticket from;
    std::weak_ptr<FailureScope> to;
    Ticket at;
  };
  void finish_locked(Ticket ticket, const FailurePtr& failure);
  void settle_edges_locked();

  const std::shared_ptr<Cell> cell_;
  Ticket failed_at_ = kNeverFailed;
  FailurePtr failure_;
  std::multiset<Ticket> pending_;
  std::vector<Edge> edges_;
};

}  // namespace tugline::device::cuda

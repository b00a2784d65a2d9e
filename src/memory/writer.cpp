// SPDX-License-Identifier: Apache-2.0
#include "memory/writer.h"

#include <fmt/format.h>

#include <chrono>

#include "base/clock.h"
#include "base/futex.h"
#include "tugline/error.h"

namespace tugline::memory {
namespace {

/// A killed process of 100 GiB takes several seconds to be taken down.
constexpr std::chrono::seconds kEndDeadline{30};
/// Between two looks at what no futex tells of.
constexpr std::chrono::milliseconds kLookAgain{20};

}  // namespace

Writer::Writer(NamedHeader& header, std::shared_ptr<broker::Client> client, std::string name)
    : header_(header), client_(std::move(client)), name_(std::move(name)) {
  const auto& control = client_->control();
  const auto id = client_->member();
  self_ = {control.generation, static_cast<std::uint16_t>(id), core::incarnation_of(control.members[id])};
}

bool Writer::is_living(MemberIdentity member) const noexcept {
  const auto& control = client_->control();
  if (member.generation != control.generation || member.member >= core::kMaxMembers) return false;
  const auto status = core::status_of(control.members[member.member]);
  return status.incarnation == member.incarnation &&
         (status.state == core::MemberState::joining || status.state == core::MemberState::alive);
}

void Writer::claim() {
  require_membership();
  auto former = header_.writer.load(std::memory_order_acquire);
  for (;;) {
    const auto writer = MemberIdentity::decode(former);
    if (writer == self_) return;
    if (former != 0 && is_living(writer)) throw_taken(writer);
    if (former != 0) wait_for_end(writer);
    if (header_.writer.compare_exchange_strong(former, self_.encode(), std::memory_order_acq_rel,
                                               std::memory_order_acquire))
      return;
  }
}

void Writer::require() const {
  require_membership();
  const auto writer = MemberIdentity::decode(header_.writer.load(std::memory_order_acquire));
  if (writer == self_) return;
  throw Error(ErrorCode::invalid_usage,
              fmt::format("\"{}\" is published by a member that is not its writer", name_),
              "call next() and write its elements before publish()",
              {.operation = "publish", .rank = client_->rank()});
}

void Writer::require_membership() const {
  client_->require_member("named buffer");
  if (is_living(self_)) return;
  throw Error(ErrorCode::stale_epoch,
              fmt::format("\"{}\" cannot be written by a member that was removed from the job", name_),
              "join the job again", {.operation = "named buffer", .rank = client_->rank()});
}

// The dead of an earlier generation have ended: a generation begins when nobody of the last is connected.
void Writer::wait_for_end(MemberIdentity dead) const {
  auto& control = client_->control();
  if (dead.generation != control.generation) return;
  auto& slot = control.members[dead.member];
  const auto deadline = base::running_deadline(kEndDeadline);
  for (;;) {
    const auto status = core::status_of(slot);
    // A slot that has another member was free before; one that left stopped by itself.
    if (status.incarnation != dead.incarnation || status.state == core::MemberState::left) return;
    const auto ended = slot.ended.load(std::memory_order_acquire);
    if (ended != 0) return;
    const auto rank = static_cast<int>(slot.rank.load(std::memory_order_relaxed));
    if (control.broker_lost.load(std::memory_order_acquire) != 0)
      throw Error(ErrorCode::broker_lost,
                  fmt::format("the broker is gone while \"{}\" waits for the end of its dead writer, rank {}",
                              name_, rank),
                  "restart the job", {.operation = "named buffer", .rank = client_->rank(), .peer = rank});
    if (base::running_ns() > deadline)
      throw Error(ErrorCode::timed_out,
                  fmt::format("the writer of \"{}\", rank {}, is dead but its process has not ended in {} s",
                              name_, rank, kEndDeadline.count()),
                  "end that process: it could still write into the buffer",
                  {.operation = "named buffer", .rank = client_->rank(), .peer = rank});
    base::futex_wait(slot.ended, ended, kLookAgain);
  }
}

void Writer::throw_taken(MemberIdentity writer) const {
  const auto rank =
      static_cast<int>(client_->control().members[writer.member].rank.load(std::memory_order_relaxed));
  throw Error(
      ErrorCode::invalid_usage,
      fmt::format("\"{}\" is written by rank {} (member {}), which is alive; rank {} (member {}) asks "
                  "to write it",
                  name_, rank, writer.member, client_->rank(), self_.member),
      "let one rank write a named buffer, or name one per rank",
      {.operation = "named buffer", .rank = client_->rank(), .peer = rank});
}

}  // namespace tugline::memory

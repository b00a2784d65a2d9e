// SPDX-License-Identifier: Apache-2.0
#include "comm/late.h"

#include <fmt/format.h>

#include "base/clock.h"
#include "base/log.h"
#include "broker/process_status.h"

namespace tugline::comm {
namespace {

constexpr std::uint64_t kNanosecondsPerSecond = 1'000'000'000;

}  // namespace

std::string stopped_ranks(const core::ControlSegment& control, const Board& board, const Epoch& epoch) {
  const auto own_space = broker::own_identity().pid_namespace;
  std::string text;
  for (std::uint32_t rank = 0; rank < epoch.size; ++rank) {
    const auto member = board.members[epoch.originals[rank]].load(std::memory_order_acquire);
    if (rank == epoch.rank || member == 0 || own_space == 0) continue;
    const auto& slot = control.members[member - 1];
    const auto pid = slot.pid.load(std::memory_order_acquire);
    if (core::is_gone(slot) || slot.pid_namespace.load(std::memory_order_relaxed) != own_space) continue;
    const auto condition = broker::condition_of(pid);
    const bool traced = condition == broker::ProcessCondition::traced;
    if (!traced && condition != broker::ProcessCondition::stopped) continue;
    // It ticked until it was stopped.
    const auto ticked = slot.ticked_at_ns.load(std::memory_order_relaxed);
    const auto now = base::monotonic_ns();
    text += fmt::format("{}rank {} (pid {}) is {} (state {} since {} s)", text.empty() ? "" : ", ", rank, pid,
                        traced ? "held by a debugger" : "stopped", traced ? 't' : 'T',
                        now > ticked ? (now - ticked) / kNanosecondsPerSecond : 0);
  }
  return text;
}

void report_wait(const WaitPlace& place, const WaitSubject& subject, std::uint64_t waited_ns) {
  const auto stopped = stopped_ranks(*place.control, place.epoch->board->get(), *place.epoch);
  base::log(base::LogLevel::warn, "{}{}waiting for {} ms: {} of operation {} from {}, expected {}, seen {}{}",
            stopped, stopped.empty() ? "" : ": ", waited_ns / 1'000'000, subject.what, subject.sequence,
            subject.peer < 0 ? "several ranks" : fmt::format("rank {}", subject.peer), subject.expected,
            subject.seen ? subject.seen->load(std::memory_order_relaxed) : 0,
            place.about_rank ? place.about_rank(subject.peer) : std::string());
}

}  // namespace tugline::comm

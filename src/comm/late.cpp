// SPDX-License-Identifier: Apache-2.0
#include "comm/late.h"

#include <fmt/format.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/settings.h"
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

std::string wait_story(const WaitPlace& place, const ShownWait& wait) {
  std::string text = place.about_rank ? place.about_rank(wait.peer) : std::string();
  if (wait.peer_member < 0) return text;
  const auto& control = *place.control;
  text += "; " + describe_member(control, static_cast<std::uint32_t>(wait.peer_member));
  if (const auto cycle = find_cycle(control, place.member, wait); !cycle.empty())
    text += fmt::format("; a cycle: {}", cycle);
  return text;
}

void report_wait(const WaitPlace& place, const WaitSubject& subject, std::uint64_t waited_ns) {
  const auto stopped = stopped_ranks(*place.control, place.epoch->board->get(), *place.epoch);
  const auto wait = shown(place, subject, base::monotonic_ns() - waited_ns);
  const auto call = call_text(subject.call, subject.message);
  base::log(
      base::LogLevel::warn,
      "{}{}waiting for {} ms in communicator {}{}{}: {} of operation {} from {}, expected {}, seen {}{}{}",
      stopped, stopped.empty() ? "" : ": ", waited_ns / 1'000'000, place.communicator,
      call.empty() ? "" : " in ", call, subject.what, subject.sequence,
      subject.peer < 0 ? "several ranks" : fmt::format("rank {}", subject.peer), subject.expected,
      subject.seen ? subject.seen->load(std::memory_order_relaxed) : 0, wait_story(place, wait),
      base::settings().fail_after.count() == 0 ? "; TUGLINE_FAIL_AFTER is not set: this wait has no limit"
                                               : "");
}

}  // namespace tugline::comm

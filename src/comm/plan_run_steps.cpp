// SPDX-License-Identifier: Apache-2.0
// What the executor does for each kind of step.
#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/kernels_host/stream.h"
#include "comm/plan_run.h"
#include "comm/protocol.h"

namespace tugline::comm {
namespace {

// Part of a combination that is streamed: lies in the first-level cache, and holds a piece of a direct plan.
constexpr std::size_t kStagedBytes = 8 << 10;

}  // namespace

void PlanRun::execute(const core::Step& step) {
  switch (step.kind) {
    case core::StepKind::copy:
    case core::StepKind::put:
      copy(step);
      break;
    case core::StepKind::reduce:
      reduce(step);
      break;
    case core::StepKind::scale:
      scale_(resolve(step.destination), step.bytes / element_bytes_, epoch_.size);
      break;
    case core::StepKind::put_packet:
      put_packet(step);
      break;
    case core::StepKind::copy_packet:
    case core::StepKind::reduce_packet:
      take_packet(step);
      break;
    case core::StepKind::signal:
      end_visits();  // it may say that this rank is done there
      if (step.peer != core::kEveryone) {
        raise(step.peer, step.flag, step.value, true);
        break;
      }
      for (std::int32_t peer = 0, last = plan_->ranks - 1; peer <= last; ++peer)
        if (peer != own_rank()) raise(peer, step.flag, step.value, true);
      break;
    case core::StepKind::wait:
      break;
  }
}

bool PlanRun::makes_average(const core::Step& step, const core::Step& next) noexcept {
  return (step.kind == core::StepKind::reduce || step.kind == core::StepKind::reduce_packet) &&
         next.kind == core::StepKind::scale && next.destination == step.destination &&
         next.bytes == step.bytes;
}

void PlanRun::combine_operands(void* to, std::uint64_t bytes) noexcept {
  if (averages_)
    average_(to, operands_.data(), operands_.size(), bytes / element_bytes_, epoch_.size);
  else
    reduce_(to, operands_.data(), operands_.size(), bytes / element_bytes_);
}

void PlanRun::copy(const core::Step& step) {
  const auto* from = resolve_operand(step.source, step.bytes);
  if (is_streamed(step.destination)) return store_streamed(step.destination, from, step.bytes);
  auto* to = resolve(step.destination);
  if (to != from) std::memcpy(to, from, step.bytes);
}

void PlanRun::reduce(const core::Step& step) {
  operands_.assign({resolve_operand(step.source, step.bytes), resolve_operand(step.second, step.bytes)});
  for (const core::Place& operand : step.more) operands_.push_back(resolve_operand(operand, step.bytes));
  // An average that a step of its own divides is read again at once.
  if (!is_streamed(step.destination) || (plan_->average && !averages_)) {
    combine_operands(resolve(step.destination), step.bytes);
    return;
  }
  staged_.resize(kStagedBytes);
  const std::uint64_t most = kStagedBytes / element_bytes_ * element_bytes_;
  for (std::uint64_t at = 0; at < step.bytes; at += most) {
    const std::uint64_t part = std::min(most, step.bytes - at);
    combine_operands(staged_.data(), part);
    core::Place place = step.destination;
    place.offset += at;
    store_streamed(place, staged_.data(), part);
    staged_for_ = place;
    staged_bytes_ = part;
    for (const void*& operand : operands_) operand = static_cast<const std::byte*>(operand) + part;
  }
}

void PlanRun::store_streamed(const core::Place& destination, const void* source,
                             std::uint64_t bytes) noexcept {
  if (destination.rank == own_rank()) staged_bytes_ = 0;
  auto* to = resolve(destination);
  if (to != source) stream_(to, source, bytes);
  unfenced_ = true;
}

// What was streamed comes before anybody may believe that this rank is not at its buffers any more.
void PlanRun::end_visits() noexcept {
  fence_streamed();
  if (visits_) visits_->end();
}

void PlanRun::fence_streamed() noexcept {
  if (std::exchange(unfenced_, false)) stream_fence();
}

std::byte* PlanRun::resolve(const core::Place& place) const noexcept {
  switch (place.space) {
    case core::Space::input:
      if (peers_) return peers_->send(static_cast<std::uint32_t>(place.rank)) + place.offset;
      return static_cast<std::byte*>(const_cast<void*>(call_.send)) + place.offset;
    case core::Space::output:
      if (peers_) return peers_->recv(static_cast<std::uint32_t>(place.rank)) + place.offset;
      return static_cast<std::byte*>(call_.recv) + place.offset;
    case core::Space::scratch:
      break;
  }
  // Any way of giving areas to ranks is right within an operation, for a half is used by nobody else then.
  const auto rank = static_cast<std::uint32_t>(place.rank);
  return epoch_.bank.scratch(epoch_.traded[sequence_ % kHalves] ? 1 - rank : rank) + half_ + place.offset;
}

// In plans the input stands for a rank's contribution and nothing else, so whoever reads it there multiplies.
const std::byte* PlanRun::resolve_operand(const core::Place& place, std::uint64_t bytes) {
  const std::byte* from = resolve(place);
  if (place == staged_for_ && bytes <= staged_bytes_) return staged_.data();
  if (multiply_ == nullptr || place.space != core::Space::input || bytes == 0) return from;
  multiplied_.resize(std::max<std::size_t>(multiplied_.size(), bytes));
  multiply_(multiplied_.data(), from, bytes / element_bytes_, factor_);
  return multiplied_.data();
}

std::atomic<std::uint64_t>& PlanRun::flag_here(std::int32_t peer, std::uint8_t flag) const noexcept {
  return epoch_.bank.flags(epoch_.rank, static_cast<std::uint32_t>(peer)).words[flag];
}

void PlanRun::raise(std::int32_t peer, std::uint8_t flag, std::uint32_t value, bool last) const noexcept {
  auto& line = epoch_.bank.flags(static_cast<std::uint32_t>(peer), epoch_.rank);
  line.call.store(packet_flag(sequence_, fingerprint_), std::memory_order_relaxed);
  line.words[flag].store(base_ + value, std::memory_order_release);
  if (last) wake(peer);
}

void PlanRun::wake(std::int32_t rank) const noexcept {
  if (anybody_sleeps(epoch_.bank.header().sleepers))
    ring(board_.doorbells[epoch_.originals[static_cast<std::uint32_t>(rank)]]);
}

void PlanRun::put_packet(const core::Step& step) {
  publish_packet(epoch_, sequence_, fingerprint_, resolve_operand(step.source, step.bytes), step.bytes,
                 call_.has_root() ? AfterPacket::runs_ahead : AfterPacket::waits_for_others);
  if (anybody_sleeps(epoch_.bank.header().sleepers))
    for (std::int32_t peer = 0; peer < plan_->ranks; ++peer)
      if (peer != own_rank()) ring(board_.doorbells[epoch_.originals[static_cast<std::uint32_t>(peer)]]);
}

void PlanRun::take_packet(const core::Step& step) {
  const bool everyone = step.peer == core::kEveryone;
  const std::int32_t first = everyone ? 0 : step.peer;
  const std::int32_t last = everyone ? plan_->ranks - 1 : step.peer;
  // Their flags carried the fingerprint.
  for (std::int32_t peer = first; peer <= last; ++peer) trusted_[static_cast<std::size_t>(peer)] = 1;
  if (step.bytes == 0) return;  // a barrier's packet: there is no buffer
  operands_.clear();
  auto* to = resolve(step.destination);
  if (step.kind == core::StepKind::reduce_packet && !everyone) operands_.push_back(to);
  for (std::int32_t peer = first; peer <= last; ++peer)
    operands_.push_back(
        packet_part(epoch_, static_cast<std::uint32_t>(peer), sequence_, step.source.offset, step.bytes));
  if (operands_.size() == 1) {
    std::memcpy(to, operands_.front(), step.bytes);
  } else {
    combine_operands(to, step.bytes);
  }
}

}  // namespace tugline::comm

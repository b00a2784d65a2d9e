// SPDX-License-Identifier: Apache-2.0
#include "comm/one_shot_packet.h"

#include <algorithm>
#include <utility>

#include "comm/protocol.h"

namespace tugline::comm {
namespace {

// Polls of one packet before the general wait takes over; a peer that is on its way needs less. A peer that
// waits for this core needs it now.
constexpr int kQuickPolls = 200;

bool packet_is_here(const PacketLine& line, std::uint64_t flag, bool own_core) noexcept {
  for (int i = 0, polls = own_core ? kQuickPolls : 1; i < polls; ++i)
    if (line.flag.load(std::memory_order_acquire) == flag) return true;
  return false;
}

}  // namespace

bool fits_one_shot_packet(const Call& call) noexcept {
  return call.collective == core::Collective::barrier ||
         (call.collective == core::Collective::all_reduce && call.count != 0 &&
          call.bytes() <= core::kPacketBytes);
}

PacketResult run_one_shot_packet(Epoch& epoch, Board& board, WaitPlace& place, AlarmCheck alarm,
                                 const Call& call) {
  PacketResult result;
  const Descriptor descriptor = describe(call);
  const std::uint32_t print = fingerprint(descriptor);
  const std::uint64_t sequence = ++epoch.sequence;
  const auto bytes =
      static_cast<std::size_t>(call.bytes()) * (call.collective == core::Collective::all_reduce);
  publish_descriptor(epoch, sequence, descriptor);
  const void* contribution = call.send;
  alignas(8) std::byte multiplied[core::kPacketBytes];
  if (call.factor && bytes != 0) {
    multiply_kernel(call.type)(multiplied, call.send, call.count, *factor_bits(call));
    contribution = multiplied;
  }
  publish_packet(epoch, sequence, print, contribution, bytes);
  if (anybody_sleeps(epoch.bank.header().sleepers))
    for (std::uint32_t peer = 0; peer < epoch.size; ++peer)
      if (peer != epoch.rank) ring(board.doorbells[epoch.originals[peer]]);

  const std::uint64_t flag = packet_flag(sequence, print);
  PacketPayload payloads[kMaxRanks];
  const void* operands[kMaxRanks];
  for (std::uint32_t rank = 0; rank < epoch.size; ++rank) {
    const PacketLine& line = epoch.bank.packet(rank, sequence);
    if (!packet_is_here(line, flag, place.own_core)) {
      auto different = [&] {
        const auto seen = line.flag.load(std::memory_order_acquire);
        return seen != flag && seen >> 32 == (sequence & 0xffffffffu);
      };
      auto other_call = [&] {
        const auto& theirs = epoch.bank.descriptor(rank, sequence);
        if (theirs.sequence.load(std::memory_order_acquire) != sequence) return false;
        result.other = {theirs.kind.load(std::memory_order_relaxed),
                        theirs.count.load(std::memory_order_relaxed)};
        return result.other != descriptor;
      };
      bool look_now = false;  // a call without packets shows in its descriptor only
      auto poll = [&]() -> Poll {
        if (line.flag.load(std::memory_order_acquire) == flag) return Poll::done;
        if ((different() || std::exchange(look_now, false)) && other_call()) {
          result.mismatch_peer = static_cast<std::int32_t>(rank);
          return Poll::done;
        }
        return Poll::blocked;
      };
      auto look = [&] {
        look_now = true;
        return alarm();
      };
      auto subject = [&]() -> WaitSubject {
        return {"packet", static_cast<std::int32_t>(rank), sequence, flag, &line.flag, descriptor};
      };
      result.status = wait(place, poll, look, subject);
      if (result.mismatch_peer >= 0) result.status = {ErrorCode::mismatch, result.mismatch_peer};
      if (!result.status.ok()) return result;
    }
    if (bytes == 0) continue;
    read_packet(line, payloads[rank].bytes, bytes);
    operands[rank] = payloads[rank].bytes;
  }
  if (bytes != 0) {
    reduce_kernel(call.type, call.op)(call.recv, operands, epoch.size, call.count);
    if (call.op == ReduceOp::avg) scale_kernel(call.type)(call.recv, call.count, epoch.size);
  }
  epoch.known_finished = std::max(epoch.known_finished, sequence - 1);
  epoch.bank.progress(epoch.rank).finished.store(sequence, std::memory_order_release);
  return result;
}

}  // namespace tugline::comm

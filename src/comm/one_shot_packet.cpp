// SPDX-License-Identifier: Apache-2.0
#include "comm/one_shot_packet.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/kernels_host/reduce.h"
#include "comm/protocol.h"

namespace tugline::comm {
namespace {

using core::Collective;

// Polls of one packet before the general wait takes over; a peer that is on its way needs less. A peer that
// waits for this core needs it now.
constexpr int kQuickPolls = 200;

bool packet_is_here(const PacketLine& line, std::uint64_t flag, bool own_core) noexcept {
  for (int i = 0, polls = own_core ? kQuickPolls : 1; i < polls; ++i)
    if (line.flag.load(std::memory_order_acquire) == flag) return true;
  return false;
}

/// Bytes that a rank publishes, if it does.
std::uint64_t payload_bytes(const Call& call, std::uint32_t ranks) noexcept {
  switch (call.collective) {
    case Collective::barrier:
      return 0;
    case Collective::reduce_scatter:
    case Collective::all_to_all:
    case Collective::scatter:
      return call.bytes() * ranks;
    default:
      return call.bytes();
  }
}

class PacketCall {
 public:
  PacketCall(Epoch& epoch, Board& board, WaitPlace& place, FunctionRef<Status(std::uint64_t)> alarm,
             const Call& call) noexcept
      : epoch_(epoch),
        board_(board),
        place_(place),
        alarm_(alarm),
        call_(call),
        descriptor_(describe(call)),
        is_root_(static_cast<std::uint32_t>(call.root) == epoch.rank),
        offset_(payload_bytes(call, epoch.size) > call.bytes() ? epoch.rank * call.bytes() : 0),
        bytes_(call.bytes()) {}

  PacketResult run() {
    PacketResult result;
    if (!has_room(result)) return result;
    sequence_ = begin_call(epoch_, descriptor_);
    flag_ = packet_flag(sequence_, fingerprint_of(epoch_, sequence_));
    announce(epoch_, sequence_, descriptor_);
    publish();
    wake_others();
    const std::uint32_t heard_from = gather(result);
    if (!result.status.ok()) return result;
    deliver();
    if (heard_from + 1 == epoch_.size) epoch_.known_called = sequence_;
    epoch_.bank.progress(epoch_.rank).finished.store(sequence_, std::memory_order_release);
    return result;
  }

 private:
  bool has_root() const noexcept { return call_.has_root(); }
  /// Of a rooted call: the root's data goes to the others, or theirs to it.
  bool from_root() const noexcept {
    return call_.collective == Collective::broadcast || call_.collective == Collective::scatter;
  }
  bool publishes() const noexcept { return !has_root() || is_root_ == from_root(); }
  bool hears(std::uint32_t rank) const noexcept {
    if (rank == epoch_.rank) return false;
    if (!has_root()) return true;
    return from_root() ? static_cast<std::uint32_t>(call_.root) == rank : is_root_;
  }

  /// A rank that has run ahead of the others waits here until it may use its lines again.
  bool has_room(PacketResult& result) {
    const std::uint64_t next = epoch_.sequence + 1;
    const std::uint64_t needed = needed_for(next);
    if (epoch_.known_called >= needed) return true;
    // Halfway to where it would have to wait: so it looks at the others' lines only now and then.
    const std::uint64_t wish = std::max(needed, next - std::min(next, kHistory / 2));
    if (all_have_called(epoch_, wish, result.difference)) return true;
    auto poll = [&] {
      const bool done = result.difference || all_have_called(epoch_, needed, result.difference);
      return done || result.difference ? Poll::done : Poll::blocked;
    };
    auto alarm = [&] { return alarm_(needed); };
    auto subject = [&]() -> WaitSubject {
      return {"call", first_not_called(epoch_, needed), needed, needed, nullptr, descriptor_};
    };
    result.status = wait(place_, poll, alarm, subject);
    if (result.difference) result.status = {ErrorCode::mismatch, result.difference->peer};
    return result.status.ok();
  }

  void publish() {
    contribution_ = static_cast<const std::byte*>(call_.send);
    const std::uint64_t bytes = payload_bytes(call_, epoch_.size);
    if (call_.factor && bytes != 0) {
      multiply_kernel(call_.type)(multiplied_, call_.send, bytes / size_of(call_.type), *factor_bits(call_));
      contribution_ = multiplied_;
    }
    if (publishes())
      publish_packet(epoch_, sequence_, static_cast<std::uint32_t>(flag_ & 0xffffffffu), contribution_, bytes,
                     has_root() ? AfterPacket::runs_ahead : AfterPacket::waits_for_others);
  }

  /// Those who wait for this rank's packet, or until it has come so far.
  void wake_others() const noexcept {
    if (!anybody_sleeps(epoch_.bank.header().sleepers)) return;
    for (std::uint32_t rank = 0; rank < epoch_.size; ++rank)
      if (rank != epoch_.rank && (publishes() || is_root_ || static_cast<std::uint32_t>(call_.root) == rank))
        ring(board_.doorbells[epoch_.originals[rank]]);
  }

  /// Waits for all packets that this rank needs; returns how many.
  std::uint32_t gather(PacketResult& result) {
    std::uint32_t heard_from = 0;
    for (std::uint32_t rank = 0; rank < epoch_.size; ++rank) {
      if (!hears(rank)) continue;
      const PacketLine& line = epoch_.bank.packet(rank, sequence_);
      if (!packet_is_here(line, flag_, place_.own_core) && !await(rank, line, result)) return heard_from;
      ++heard_from;
    }
    // Who waits for nobody hears of what happens to the others here.
    if (heard_from == 0 && place_.control->alarm.load(std::memory_order_acquire) != place_.alarm_seen) {
      place_.alarm_seen = place_.control->alarm.load(std::memory_order_acquire);
      result.status = alarm_(sequence_);
    }
    return heard_from;
  }

  bool await(std::uint32_t rank, const PacketLine& line, PacketResult& result) {
    auto different = [&] {
      const auto seen = line.flag.load(std::memory_order_acquire);
      return seen != flag_ && seen >> 32 == (sequence_ & 0xffffffffu);
    };
    auto other_call = [&] {
      if (look_at_call(epoch_, rank, sequence_) != Announced::different) return false;
      result.difference = find_difference(epoch_, rank, sequence_);
      return true;
    };
    bool look_now = false;  // a call without packets shows in its descriptor only
    auto poll = [&]() -> Poll {
      if (line.flag.load(std::memory_order_acquire) == flag_) return Poll::done;
      if ((different() || std::exchange(look_now, false)) && other_call()) return Poll::done;
      return Poll::blocked;
    };
    auto look = [&] {
      look_now = true;
      return alarm_(sequence_);
    };
    auto subject = [&]() -> WaitSubject {
      return {"packet", static_cast<std::int32_t>(rank), sequence_, flag_, &line.flag, descriptor_};
    };
    result.status = wait(place_, poll, look, subject);
    if (result.difference) result.status = {ErrorCode::mismatch, result.difference->peer};
    return result.status.ok();
  }

  const std::byte* from(std::uint32_t rank) const noexcept {
    return rank == epoch_.rank ? contribution_ + offset_
                               : packet_part(epoch_, rank, sequence_, offset_, bytes_);
  }

  void deliver() {
    switch (call_.collective) {
      case Collective::all_reduce:
      case Collective::reduce_scatter:
        combine();
        break;
      case Collective::reduce:
        if (is_root_) combine();
        break;
      case Collective::all_gather:
      case Collective::all_to_all:
        collect();
        break;
      case Collective::gather:
        if (is_root_) collect();
        break;
      case Collective::broadcast:
      case Collective::scatter:
        copy(static_cast<std::byte*>(call_.recv), from(static_cast<std::uint32_t>(call_.root)));
        break;
      default:
        break;
    }
  }

  void copy(std::byte* to, const std::byte* from) const noexcept {
    if (to != from) std::memcpy(to, from, bytes_);
  }

  /// Everybody's part, combined in the order of ranks.
  void combine() {
    const void* operands[kMaxRanks];
    for (std::uint32_t rank = 0; rank < epoch_.size; ++rank) operands[rank] = from(rank);
    if (call_.op == ReduceOp::avg)
      average_kernel(call_.type)(call_.recv, operands, epoch_.size, call_.count, epoch_.size);
    else
      reduce_kernel(call_.type, call_.op)(call_.recv, operands, epoch_.size, call_.count);
  }

  /// Everybody's part, one behind the other.
  void collect() const noexcept {
    auto* to = static_cast<std::byte*>(call_.recv);
    for (std::uint32_t rank = 0; rank < epoch_.size; ++rank) copy(to + rank * bytes_, from(rank));
  }

  Epoch& epoch_;
  Board& board_;
  WaitPlace& place_;
  const FunctionRef<Status(std::uint64_t)> alarm_;
  const Call& call_;
  const Descriptor descriptor_;
  const bool is_root_;  ///< of a rooted call
  // What this rank takes of the others' packets.
  const std::uint64_t offset_;
  const std::uint64_t bytes_;
  std::uint64_t sequence_ = 0;
  std::uint64_t flag_ = 0;
  const std::byte* contribution_ = nullptr;
  alignas(kLine) std::byte multiplied_[core::packet_bytes(1)];
};

}  // namespace

bool fits_one_shot_packet(const Call& call, std::uint32_t ranks) noexcept {
  if (call.counts || call.is_message()) return false;
  return call.collective == Collective::barrier ||
         (call.count != 0 &&
          payload_bytes(call, ranks) <= core::packet_bytes(static_cast<std::int32_t>(ranks)));
}

PacketResult run_one_shot_packet(Epoch& epoch, Board& board, WaitPlace& place,
                                 FunctionRef<Status(std::uint64_t sequence)> alarm, const Call& call) {
  return PacketCall(epoch, board, place, alarm, call).run();
}

}  // namespace tugline::comm

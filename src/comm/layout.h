// SPDX-License-Identifier: Apache-2.0
// Shared memory of a communicator, as offsets in one place.
//
// Two kinds of segment, both held by the broker:
//   - the board: one per communicator, lives as long as it does; who is who, doorbells, agreements;
//   - the bank: one per epoch; failure record, packets, flags, descriptors, scratch. A new epoch gets a
//   fresh, zeroed bank, so that
//     nothing a removed rank may still write can reach the survivors.
// Ranks on the board are original ranks; ranks in a bank are those of the epoch (compact).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/agreement.h"
#include "core/plan/plan.h"

namespace tugline::comm {

inline constexpr std::uint32_t kMaxRanks = core::kMaxAgreementRanks;
inline constexpr std::size_t kLine = 64;
/// Operations of which a packet or descriptor stays readable: a rank starts operation s only when every rank
/// has started s - kHistory + 1. Two would do for packets; the others let a broadcast's root run ahead.
inline constexpr std::uint64_t kHistory = 8;
/// Scratch halves: operation s uses half s mod 2, so that no exit barrier is needed between neighbours in
/// time.
inline constexpr std::uint64_t kHalves = 2;
/// Flag words carry sequence << kFlagShift | value; values of one operation stay below 1 << kFlagShift.
inline constexpr unsigned kFlagShift = 20;
static_assert(core::kMaxFlagValue < std::uint64_t{1} << kFlagShift);

/// What a rank does in an operation; compared word by word, so that a difference can be named.
struct Descriptor {
  std::uint64_t kind = 0;   ///< collective | type << 8 | op << 16 | root << 32
  std::uint64_t count = 0;  ///< elements; with counts of every rank, a hash of them
  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};

/// Published once per operation by its rank, read by peers before they trust its data.
struct alignas(kLine) DescriptorLine {
  std::atomic<std::uint64_t> sequence;  ///< release after the fields below; 0: never or being written
  std::atomic<std::uint64_t> kind;
  std::atomic<std::uint64_t> count;
  std::atomic<std::uint64_t> history;  ///< hash over this and all earlier calls of the epoch
  // Of all_to_all_v: sums over hashes of what this rank sends to each peer, and expects from each.
  std::atomic<std::uint64_t> sends;
  std::atomic<std::uint64_t> expects;
};
static_assert(sizeof(DescriptorLine) == kLine);

/// Where a rank's buffers of an operation lie; before the descriptor, for calls of kDirectFromBytes and more.
/// See direct.h.
struct alignas(2 * kLine) OfferLine {
  std::atomic<std::uint64_t> reach;  ///< Offer::Reach | this rank's limits of imports, see direct.cpp
  std::atomic<std::uint64_t> send_segment, send_offset;
  std::atomic<std::uint64_t> recv_segment, recv_offset;
  std::atomic<std::uint64_t> process;  ///< base::process_identity() of where the addresses mean something
  std::atomic<std::uint64_t> send_address, recv_address;
  // What it takes another rank to map these segments, and the bytes that this one may have mapped at once; 0:
  // no limit. A line of its own: read only where a limit may be reached.
  std::atomic<std::uint64_t> bytes, mappings, limit_bytes;
};
static_assert(sizeof(OfferLine) == 2 * kLine);

/// A packet: the first bytes of its payload in one cache line with its flag, which is written last; the whole
/// of a longer one beside its rank's scratch. Nobody writes it while others may read it, so the payload needs
/// no atomics.
struct alignas(kLine) PacketLine {
  static constexpr std::size_t kBytes = 56;
  std::atomic<std::uint64_t> flag;  ///< sequence (low 32 bits) << 32 | fingerprint of the calls so far
  std::byte payload[kBytes];
};
static_assert(sizeof(PacketLine) == kLine);

/// Flags that one rank raises at another: written by the source alone.
struct alignas(kLine) FlagLine {
  std::atomic<std::uint64_t> words[core::kFlagsPerPair];
  /// Which call they were raised in, as in a packet's flag: who sees it needs not fetch the descriptor.
  std::atomic<std::uint64_t> call;
};
static_assert(sizeof(FlagLine) == kLine);

/// Progress of one rank in this epoch.
struct alignas(kLine) ProgressLine {
  std::atomic<std::uint64_t> finished;  ///< collective operations finished; release
  std::atomic<std::uint32_t>
      present;  ///< 1 once the rank has mapped this bank, which keeps it alive; release
  std::atomic<std::uint64_t> visiting;  ///< operation at whose buffers of others it is now; 0: none
};

/// The last operation of a rank whose buffers may not be touched any more: see visit.h. Read by all in every
/// direct operation and hardly ever written, so it has a line of its own.
struct alignas(kLine) WithdrawalLine {
  std::atomic<std::uint64_t> withdrawn;
};

/// Cells of an ordered pair: as many messages, or chunks of one, may be on their way.
inline constexpr std::uint64_t kMessageCells = 16;
/// Bytes of a message that travel in its cell.
inline constexpr std::uint64_t kCellBytes = 32;

/// Announces a message to its receiver, or brings a further chunk of it. See channel.h.
struct alignas(kLine) MessageCell {
  enum class Form : std::uint64_t {
    in_cell,    ///< all bytes are in `words`
    in_buffer,  ///< a chunk is in buffer number words[0], which is the receiver's from now on
    direct,     ///< all bytes are in the sender's own buffer: segment, offset, process, address
  };
  std::atomic<std::uint64_t> flag;         ///< number of the cell (low 32 bits) << 32 | fingerprint; release
  std::atomic<std::uint64_t> kind, count;  ///< the sender's descriptor
  std::atomic<std::uint64_t> form;
  std::atomic<std::uint64_t> words[kCellBytes / 8];
};
static_assert(sizeof(MessageCell) == kLine);

/// What a receiver tells the sender.
struct alignas(kLine) ReceiptLine {
  std::atomic<std::uint64_t> cells;     ///< done with so far; release
  std::atomic<std::uint64_t> buffers;   ///< of these, with a buffer; before `cells`
  std::atomic<std::uint64_t> returned;  ///< buffers given back so far, see MessageLines::returns; release
  std::atomic<std::uint64_t>
      declined;  ///< the last cell whose sender's buffer cannot be reached; before `cells`
  std::atomic<std::uint64_t> visiting;  ///< cell at whose sender's buffer it is now; 0: none
};

/// Buffers that two ranks have together: a half of them in each of their two areas.
inline constexpr std::uint64_t kMostBuffers = 32;

/// Control of the messages of an ordered pair.
struct MessageLines {
  MessageCell cells[kMessageCells];  ///< by the sender
  ReceiptLine receipt;               ///< by the receiver
  alignas(
      kLine) std::atomic<std::uint16_t> returns[kMostBuffers];  ///< by the receiver; number r at r mod size
  WithdrawalLine withdrawal;  ///< by the sender: its buffer of no cell up to this one may be touched any more
};

/// Why a communicator ended for everybody, written once by the first rank that finds out.
enum class FailureKind : std::uint32_t { none, mismatch, pair_mismatch, aborted };

struct FailureRecord {
  static constexpr std::size_t kReasonBytes = 256;
  static constexpr std::size_t kNameBytes = 64;
  std::atomic<std::uint32_t> state;  ///< 0 none, 1 being written, 2 valid (release)
  FailureKind kind;
  std::uint64_t sequence;
  std::uint32_t rank[2];  ///< ranks of that epoch: the finder, the other one
  Descriptor descriptor[2];
  char communicator[2][kNameBytes];  ///< where each of the two was called; empty: in this communicator
  char reason[kReasonBytes];         ///< aborted: zero-terminated text
};

/// First lines of a bank.
struct BankHeader {
  /// Ranks that sleep or are about to: a signaller that reads 0 has nobody to wake. See Nap in wait.h.
  alignas(kLine) std::atomic<std::uint32_t> sleepers;
  alignas(kLine) FailureRecord failure;
};

/// All ranks' scratch together; the design's limit per communicator.
inline constexpr std::uint64_t kScratchLimit = 32 << 20;
/// Scratch per rank, both halves, of a communicator that starts with `ranks` under the setting scratch_bytes.
constexpr std::uint64_t rank_scratch_bytes(std::uint64_t ranks, std::uint64_t setting) noexcept {
  return std::min(setting, kScratchLimit / ranks);
}
/// Buffers of an ordered pair of `ranks`, together: what send and recv use.
constexpr std::uint64_t pair_scratch_bytes(std::uint64_t ranks) noexcept {
  return std::clamp<std::uint64_t>((16 << 20) / (ranks * ranks), 8 << 10, 512 << 10);
}

/// Buffers that an area of so many bytes is cut into: a multiple of four.
constexpr std::uint64_t message_buffers(std::uint64_t pair_bytes) noexcept {
  return std::clamp<std::uint64_t>(pair_bytes / (64 << 10) * 4, 4, kMostBuffers / 2);
}

/// Offsets within a bank of `ranks` ranks. Pure arithmetic; all areas are line-aligned, scratch page-aligned.
struct BankLayout {
  std::uint32_t ranks = 0;
  std::uint64_t scratch_bytes = 0;  ///< per rank, both halves
  std::uint64_t packet_bytes = 0;   ///< place of a long packet
  std::uint64_t rank_bytes = 0;     ///< per rank: scratch, and the long packets behind it
  std::uint64_t pair_bytes = 0;     ///< per ordered pair
  std::uint64_t header = 0, progress = 0, withdrawals = 0, descriptors = 0, offers = 0, packets = 0,
                flags = 0, counts = 0, control_end = 0;
  std::uint64_t scratch = 0, messages = 0, pairs = 0, total = 0;

  static BankLayout make(std::uint32_t ranks, std::uint64_t scratch_bytes,
                         std::uint64_t pair_bytes) noexcept {
    BankLayout layout;
    layout.ranks = ranks;
    layout.scratch_bytes = round_up(scratch_bytes, kPage);
    layout.packet_bytes = round_up(core::packet_bytes(static_cast<std::int32_t>(ranks)), kLine);
    layout.rank_bytes = round_up(layout.scratch_bytes + kHistory * layout.packet_bytes, kPage);
    layout.pair_bytes = round_up(pair_bytes, kLine);
    const std::uint64_t n = ranks;
    std::uint64_t at = 0;
    auto take = [&](std::uint64_t bytes, std::uint64_t alignment) {
      at = round_up(at, alignment);
      return std::exchange(at, at + bytes);
    };
    layout.header = take(sizeof(BankHeader), kLine);
    layout.progress = take(n * sizeof(ProgressLine), kLine);
    layout.withdrawals = take(n * sizeof(WithdrawalLine), kLine);
    layout.descriptors = take(n * kHistory * sizeof(DescriptorLine), kLine);
    layout.offers = take(n * kHistory * sizeof(OfferLine), 2 * kLine);
    layout.packets = take(n * kHistory * sizeof(PacketLine), kLine);
    layout.flags = take(n * n * sizeof(FlagLine), kLine);
    layout.counts = take(n * kHalves * 3 * n * sizeof(std::uint64_t), kLine);
    layout.control_end = round_up(at, kPage);
    layout.scratch = take(n * layout.rank_bytes, kPage);
    // Resident as it is used: most ranks exchange messages with few others.
    layout.messages = take(n * n * sizeof(MessageLines), kPage);
    layout.pairs = take(n * n * layout.pair_bytes, kPage);
    layout.total = round_up(at, kPage);
    return layout;
  }

 private:
  static constexpr std::uint64_t kPage = 4096;
  static constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t alignment) noexcept {
    return (value + alignment - 1) / alignment * alignment;
  }
};

/// Where a rank sleeps.
struct alignas(kLine) Doorbell {
  std::atomic<std::uint32_t> rings;     ///< futex word
  std::atomic<std::uint32_t> sleeping;  ///< 1 while the owner sleeps or is about to
};

/// The cores a rank may run on, as it found them when it came.
struct alignas(kLine) CoreSet {
  static constexpr std::size_t kWords = 16;
  std::atomic<std::uint64_t> words[kWords];  ///< bit c of word w: core 64 * w + c
};

/// What a rank has called when it posts an agreement that settles this communicator: see same_calls.h.
struct alignas(kLine) CallsNote {
  std::atomic<std::uint64_t> words[2];  ///< by parity of the settlement's number
};

/// The settings of a rank that are to be the same on all ranks: base::same_values(), then zeros.
struct alignas(kLine) SettingsNote {
  static constexpr std::size_t kWords = 8;
  std::atomic<std::uint64_t> words[kWords];
};

struct Board {
  alignas(kLine)
      std::atomic<std::uint32_t> members[kMaxRanks];  ///< member id + 1 by original rank, 0: not here yet
  CoreSet cores[kMaxRanks];                           ///< by original rank; written before `members`
  std::atomic<std::uint64_t> localities[kMaxRanks];   ///< Locality::packed(), likewise
  std::atomic<std::uint64_t> processes[kMaxRanks];    ///< base::process_identity(), likewise
  SettingsNote settings[kMaxRanks];                   ///< likewise
  /// Two original ranks + 1 whose settings differ, one in each half; 0: none. The first to find some says so.
  std::atomic<std::uint64_t> different_settings;
  Doorbell doorbells[kMaxRanks];  ///< by original rank
  CallsNote notes[kMaxRanks];     ///< by original rank
  core::AgreementBoard agreements;
};

}  // namespace tugline::comm

// SPDX-License-Identifier: Apache-2.0
// How a rank announces an operation and how packets are written: shared by the executor and the specialised
// path.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "comm/call.h"
#include "comm/epoch.h"
#include "comm/layout.h"

namespace tugline::comm {

/// Publishes the counts of a call that has some, to be read by who has seen the descriptor: of block r (or
/// sent to rank r) at r; of all_to_all_v also what is expected from rank r at ranks + r, and at 2 * ranks + r
/// where in the input the block for rank r begins.
inline void publish_counts(const Epoch& epoch, std::uint64_t sequence, const Counts& counts) noexcept {
  auto* row = epoch.bank.counts(epoch.rank, sequence);
  std::uint64_t sends = 0;
  std::uint64_t expects = 0;
  for (std::uint32_t peer = 0; peer < epoch.size; ++peer) {
    row[peer].store(counts.send[peer], std::memory_order_relaxed);
    if (!counts.of_pairs()) continue;
    row[epoch.size + peer].store(counts.recv[peer], std::memory_order_relaxed);
    row[2 * epoch.size + peer].store(counts.send_displacements[peer], std::memory_order_relaxed);
    sends += hash_of_pair(epoch.rank, peer, counts.send[peer]);
    expects += hash_of_pair(peer, epoch.rank, counts.recv[peer]);
  }
  auto& line = epoch.bank.descriptor(epoch.rank, sequence);
  line.sends.store(sends, std::memory_order_relaxed);
  line.expects.store(expects, std::memory_order_relaxed);
}

/// Flag of a packet: low half of the sequence number over the fingerprint of the calls. Sequence numbers
/// start at 1, and a place holds number s - kHistory before s, so no flag value can be mistaken for another
/// one's, at the wrap either.
inline std::uint64_t packet_flag(std::uint64_t sequence, std::uint32_t fingerprint) noexcept {
  return sequence << 32 | fingerprint;
}

/// What a rank does once its packet is written.
enum class AfterPacket { waits_for_others, runs_ahead };

/// Writes this rank's packet: payload first, flag last (release).
inline void publish_packet(const Epoch& epoch, std::uint64_t sequence, std::uint32_t fingerprint,
                           const void* payload, std::size_t bytes, AfterPacket after) noexcept {
  auto& line = epoch.bank.packet(epoch.rank, sequence);
  if (bytes != 0) std::memcpy(line.payload, payload, std::min(bytes, PacketLine::kBytes));
  if (bytes > PacketLine::kBytes) std::memcpy(epoch.bank.long_packet(epoch.rank, sequence), payload, bytes);
  const auto flag = packet_flag(sequence, fingerprint);
  // An exchange leaves the store buffer at once, which takes a quarter off a small operation's time. Who
  // waits for nobody runs ahead of its stores instead: that takes a tenth off a broadcast of 8 bytes.
  if (after == AfterPacket::waits_for_others)
    line.flag.exchange(flag, std::memory_order_release);
  else
    line.flag.store(flag, std::memory_order_release);
}

/// Where `bytes` of a packet whose flag was seen (acquire) can be read until this rank has finished the
/// operation.
inline const std::byte* packet_part(const Epoch& epoch, std::uint32_t rank, std::uint64_t sequence,
                                    std::size_t offset, std::size_t bytes) noexcept {
  const bool in_line = offset + bytes <= PacketLine::kBytes;
  return (in_line ? epoch.bank.packet(rank, sequence).payload : epoch.bank.long_packet(rank, sequence)) +
         offset;
}

}  // namespace tugline::comm

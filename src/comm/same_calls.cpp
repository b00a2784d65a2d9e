// SPDX-License-Identifier: Apache-2.0
#include "comm/same_calls.h"

#include <algorithm>

namespace tugline::comm {
namespace {

std::uint64_t extend(std::uint64_t history, const Descriptor& descriptor) noexcept {
  std::uint64_t mixed = (history ^ descriptor.kind) * 0x9e3779b97f4a7c15u;
  mixed = (mixed ^ mixed >> 32 ^ descriptor.count) * 0xd6e8feb86659fd93u;
  return mixed ^ mixed >> 29;
}

struct Announcement {
  Descriptor descriptor;
  std::uint64_t history = 0;
};

/// What a rank says of an operation; none when its line is of another one. It may be written again while it
/// is read: the acquire loads and the release stores of announce() keep the second look honest.
std::optional<Announcement> announced_by(const Epoch& epoch, std::uint32_t rank,
                                         std::uint64_t sequence) noexcept {
  const auto& line = epoch.bank.descriptor(rank, sequence);
  if (line.sequence.load(std::memory_order_acquire) != sequence) return std::nullopt;
  Announcement found;
  found.descriptor = {line.kind.load(std::memory_order_acquire), line.count.load(std::memory_order_acquire)};
  found.history = line.history.load(std::memory_order_acquire);
  if (line.sequence.load(std::memory_order_relaxed) != sequence) return std::nullopt;
  return found;
}

/// A note says which settlement it is for, so that an old one is none.
std::uint64_t note_of(const Epoch& epoch, std::uint64_t settlement) noexcept {
  return settlement << 48 | epoch.history[epoch.sequence % kHistory] >> 16;
}

/// Of two ranks whose notes differ.
CallDifference difference_of_notes(const Epoch& epoch, std::uint32_t rank,
                                   const Descriptor& agreement) noexcept {
  const auto peer = static_cast<std::int32_t>(rank);
  std::uint64_t common = epoch.sequence;
  while (common > needed_for(epoch.sequence) && look_at_call(epoch, rank, common) == Announced::not_yet)
    --common;
  if (common != 0 && look_at_call(epoch, rank, common) == Announced::different)
    return find_difference(epoch, rank, common);
  if (common < epoch.sequence)
    return {peer, common + 1, announced_by(epoch, epoch.rank, common + 1)->descriptor, agreement};
  const auto theirs = announced_by(epoch, rank, common + 1);
  return {peer, common + 1, agreement, theirs ? theirs->descriptor : Descriptor{}};
}

}  // namespace

std::uint64_t begin_call(Epoch& epoch, const Descriptor& descriptor) noexcept {
  const std::uint64_t before = epoch.check ? epoch.history[epoch.sequence % kHistory] : 0;
  ++epoch.sequence;
  epoch.history[epoch.sequence % kHistory] = extend(before, descriptor);
  return epoch.sequence;
}

void announce(const Epoch& epoch, std::uint64_t sequence, const Descriptor& descriptor) noexcept {
  auto& line = epoch.bank.descriptor(epoch.rank, sequence);
  line.sequence.store(0, std::memory_order_relaxed);
  line.kind.store(descriptor.kind, std::memory_order_release);
  line.count.store(descriptor.count, std::memory_order_release);
  line.history.store(epoch.history[sequence % kHistory], std::memory_order_release);
  line.sequence.store(sequence, std::memory_order_release);
}

std::uint32_t fingerprint_of(const Epoch& epoch, std::uint64_t sequence) noexcept {
  const std::uint64_t history = epoch.history[sequence % kHistory];
  return static_cast<std::uint32_t>((history ^ history >> 32) & 0xffffffffu);
}

Announced look_at_call(const Epoch& epoch, std::uint32_t rank, std::uint64_t sequence) noexcept {
  if (const auto found = announced_by(epoch, rank, sequence))
    return found->history == epoch.history[sequence % kHistory] ? Announced::same : Announced::different;
  // Whoever has gone on so far that it uses the line again has compared its calls with this rank's.
  const auto at = epoch.bank.descriptor(rank, sequence).sequence.load(std::memory_order_acquire);
  return at > sequence ? Announced::same : Announced::not_yet;
}

CallDifference find_difference(const Epoch& epoch, std::uint32_t rank, std::uint64_t sequence) noexcept {
  CallDifference difference{static_cast<std::int32_t>(rank), sequence, {}, {}};
  for (std::uint64_t at = std::max<std::uint64_t>(needed_for(sequence), 1); at <= sequence; ++at) {
    const auto mine = announced_by(epoch, epoch.rank, at);
    const auto theirs = announced_by(epoch, rank, at);
    if (!mine || !theirs) continue;
    difference = {static_cast<std::int32_t>(rank), at, mine->descriptor, theirs->descriptor};
    if (mine->descriptor != theirs->descriptor) break;
  }
  return difference;
}

bool all_have_called(Epoch& epoch, std::uint64_t sequence,
                     std::optional<CallDifference>& difference) noexcept {
  if (epoch.known_called >= sequence) return true;
  for (std::uint32_t rank = 0; rank < epoch.size; ++rank) {
    if (rank == epoch.rank) continue;
    switch (look_at_call(epoch, rank, sequence)) {
      case Announced::same:
        continue;
      case Announced::different:
        if (!epoch.check) continue;
        difference = find_difference(epoch, rank, sequence);
        return false;
      case Announced::not_yet:
        return false;
    }
  }
  epoch.known_called = sequence;
  return true;
}

std::int32_t first_not_called(const Epoch& epoch, std::uint64_t sequence) noexcept {
  for (std::uint32_t rank = 0; rank < epoch.size; ++rank)
    if (rank != epoch.rank && look_at_call(epoch, rank, sequence) == Announced::not_yet)
      return static_cast<std::int32_t>(rank);
  return -1;
}

void note_calls(const Epoch& epoch, std::uint64_t settlement) noexcept {
  auto& note = epoch.board->get().notes[epoch.originals[epoch.rank]];
  note.words[settlement % 2].store(note_of(epoch, settlement), std::memory_order_release);
}

std::optional<CallDifference> compare_notes(Epoch& epoch, std::uint64_t settlement, const core::RankSet& lost,
                                            const Descriptor& agreement) noexcept {
  if (!epoch.check) return std::nullopt;
  const std::uint64_t mine = note_of(epoch, settlement);
  for (std::uint32_t rank = 0; rank < epoch.size; ++rank) {
    const auto original = epoch.originals[rank];
    if (rank == epoch.rank || lost.has(original)) continue;
    const auto theirs =
        epoch.board->get().notes[original].words[settlement % 2].load(std::memory_order_acquire);
    // Another settlement's: a communicator that the rank has dropped, or it is two agreements ahead already.
    if (theirs == mine || theirs >> 48 != mine >> 48) continue;
    return difference_of_notes(epoch, rank, agreement);
  }
  if (lost.empty()) epoch.known_called = epoch.sequence;
  return std::nullopt;
}

}  // namespace tugline::comm

// SPDX-License-Identifier: Apache-2.0
// How a builder cuts a message into chunks and its scratch into slots.
//
// A pipeline passes `length` bytes through a ring of slots in chunks: chunk k lies in slot k mod slots, and a
// slot holds `pieces` pieces of one chunk each. A rank publishes chunk k before it consumes chunk k - lead.
//
// When may a slot be written again? In a symmetric pipeline everyone publishes and consumes, and a rank
// consumes chunk k only after every peer has published chunk k. A peer that has published chunk j has
// consumed chunk j - 1 - lead before. So a rank that publishes chunk k, having consumed k - 1 - lead, knows
// that every peer has consumed chunk k - 2 - 2 * lead: 2 + 2 * lead slots need no flag back. A one-way
// pipeline (broadcast, reduce, send) needs credits: see CreditRule.
//
// Two ranks in a symmetric pipeline trade their scratch: what a rank publishes in a slot lies where it has
// read the slot's last chunk, which is the other one's scratch every second time. So a rank waits for nobody
// but itself before it writes a slot again, and 1 + lead slots are enough. And it writes cache lines that its
// core has just fetched: writing lines that the other core has read last costs as much as reading them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "core/plan/builders.h"

namespace tugline::core {

inline constexpr std::uint64_t kSmallestChunkBytes = 16 << 10;
/// Of a one-way pipeline, where nothing overlaps but its two ends: 16 KiB in four chunks take a fifth less.
inline constexpr std::uint64_t kSmallestOneWayChunkBytes = 4 << 10;
/// Below this chunk size a deeper pipeline does not pay for its smaller chunks.
inline constexpr std::uint64_t kShortChunkBytes = 2 << 10;
/// Chunk of two ranks that trade their scratch; from kLongTradeBytes on the larger one, up to that many
/// chunks. Two slots of both ranks stay in the second-level cache of any core. At 64 KiB twice or half as
/// much took a third to two thirds longer; from 256 KiB on both sizes copy alike, and the larger one takes
/// fewer steps.
inline constexpr std::uint64_t kTradedChunkBytes = 16 << 10;
inline constexpr std::uint64_t kLongTradeBytes = 256 << 10;
inline constexpr std::uint64_t kLongTradedChunkBytes = 32 << 10;
inline constexpr std::uint64_t kMostTradedChunks = 2048;

/// Chunk size that the builders choose for `length` bytes: enough chunks to overlap publishing with
/// consuming, small enough that the slots of all `pieces` stay in a core's cache, and not too many steps.
std::uint64_t preferred_chunk(const PlanRequest& request, std::uint64_t length, std::uint64_t pieces = 1,
                              std::uint64_t smallest = kSmallestChunkBytes) noexcept;

/// Chunk of a message, through buffers that change hands as traded scratch does; from kLongMessageBytes on
/// the larger one. With 16 KiB 64 KiB took an eighth longer, with 8 KiB a half.
inline constexpr std::uint64_t kLongMessageBytes = 64 << 10;
constexpr std::uint64_t message_chunk(std::uint64_t bytes, std::uint64_t buffer_bytes) noexcept {
  return std::min(bytes < kLongMessageBytes ? kTradedChunkBytes : kLongTradedChunkBytes, buffer_bytes);
}

struct Pipeline {
  std::uint64_t length = 0;  ///< bytes that pass through one piece
  std::uint64_t chunk = 0;   ///< bytes per piece, a multiple of element_bytes
  std::uint64_t stride = 0;  ///< bytes from piece to piece in scratch
  std::uint64_t pieces = 1;
  std::uint64_t slots = 1;
  std::uint64_t lead = 0;
  bool trades = false;  ///< two ranks trade their scratch from round to round of the slots

  std::uint64_t chunks() const noexcept { return length == 0 ? 0 : (length + chunk - 1) / chunk; }
  std::uint64_t offset(std::uint64_t k) const noexcept { return k * chunk; }
  /// Bytes of chunk k of a piece that is `piece_length` long; 0 behind its end.
  std::uint64_t bytes(std::uint64_t k, std::uint64_t piece_length) const noexcept {
    return offset(k) >= piece_length ? 0 : std::min(chunk, piece_length - offset(k));
  }
  std::uint64_t bytes(std::uint64_t k) const noexcept { return bytes(k, length); }
  /// Scratch offset of a piece of chunk k.
  std::uint64_t slot(std::uint64_t k, std::uint64_t piece = 0) const noexcept {
    return ((k % slots) * pieces + piece) * stride;
  }
  /// Rank in whose scratch lies what `rank` publishes of chunk k.
  std::int32_t home(std::int32_t rank, std::uint64_t k) const noexcept {
    return trades && k / slots % 2 == 1 ? 1 - rank : rank;
  }
  /// True when the next operation finds each rank's scratch traded: Plan::trades_scratch.
  bool ends_traded() const noexcept { return trades && (chunks() + slots - 1) / slots % 2 == 1; }
  std::uint64_t scratch_bytes() const noexcept { return slots * pieces * stride; }
};

/// Lays out a pipeline with exactly `slots` slots (fewer when there are fewer chunks) in the request's
/// scratch; none when not even one element per piece fits, or when chunks are too many to be counted by a
/// flag. `chunk` is the wish, made smaller to fit.
std::optional<Pipeline> lay_out(const PlanRequest& request, std::uint64_t length, std::uint64_t pieces,
                                std::uint64_t slots, std::uint64_t chunk) noexcept;
/// A symmetric pipeline: four slots and lead 1, or two slots and lead 0 where scratch is short; of two ranks
/// one in which they trade their scratch.
std::optional<Pipeline> symmetric_pipeline(const PlanRequest& request, std::uint64_t length,
                                           std::uint64_t pieces) noexcept;
/// Several stages, each `lead` chunks behind the one before: `deep_slots` slots and lead 1, or two slots and
/// lead 0 where scratch is short.
std::optional<Pipeline> staged_pipeline(const PlanRequest& request, std::uint64_t length,
                                        std::uint64_t pieces, std::uint64_t deep_slots) noexcept;
/// A one-way pipeline with credits: as many as eight slots.
std::optional<Pipeline> one_way_pipeline(const PlanRequest& request, std::uint64_t length,
                                         std::uint64_t pieces = 1) noexcept;

/// Runs publish(k) and consume(k - lead) in the order described above.
template <class Publish, class Consume>
void interleave(const Pipeline& pipeline, Publish publish, Consume consume) {
  const std::uint64_t chunks = pipeline.chunks();
  for (std::uint64_t i = 0; i < chunks + pipeline.lead; ++i) {
    if (i < chunks) publish(i);
    if (i >= pipeline.lead) consume(i - pipeline.lead);
  }
}

/// Credits of a one-way pipeline, given back for `group` slots at a time: the reader signals the number of
/// items it has read, the writer waits for it before the first item of a group that would overwrite.
struct CreditRule {
  std::uint64_t slots = 1;
  std::uint64_t items = 0;  ///< in the whole operation

  std::uint64_t group() const noexcept { return slots % 2 == 0 ? slots / 2 : 1; }
  /// Credit that the writer needs before it writes item k; 0: none.
  std::uint64_t needed(std::uint64_t k) const noexcept {
    return k >= slots && k % group() == 0 ? k - slots + group() : 0;
  }
  /// Credit that the reader gives after it has read item k; 0: nobody will wait for it.
  std::uint64_t given(std::uint64_t k) const noexcept {
    return (k + 1) % group() == 0 && k + 1 + slots - group() < items ? k + 1 : 0;
  }
};

}  // namespace tugline::core

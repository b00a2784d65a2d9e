// SPDX-License-Identifier: Apache-2.0
#include "core/plan/pipeline.h"

#include "core/plan/builder_parts.h"

#include <numeric>

namespace tugline::core {

namespace {

constexpr std::uint64_t kCacheLineBytes = 64;
constexpr std::uint64_t kLargestCachedChunkBytes = 64 << 10;
constexpr std::uint64_t kLargestChunkBytes = 256 << 10;
constexpr std::uint64_t kDepth = 4;
/// Above this many chunks, larger chunks cost less than more steps.
constexpr std::uint64_t kManyChunks = 1024;
constexpr std::uint64_t kMostChunks = 4096;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) noexcept {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

std::uint64_t preferred_chunk(const PlanRequest& request, std::uint64_t length, std::uint64_t pieces,
                              std::uint64_t smallest) noexcept {
  if (request.chunk_bytes != 0) return request.chunk_bytes;
  std::uint64_t chunk = std::clamp(length / kDepth, smallest, kLargestCachedChunkBytes);
  if (length / chunk > kManyChunks) chunk = kLargestChunkBytes;
  if (length / chunk > kMostChunks) chunk = length / kMostChunks;
  // Two pieces a slot are as good as one.
  return pieces <= 2 ? chunk : std::max(chunk * 2 / pieces, smallest);
}

std::optional<Pipeline> lay_out(const PlanRequest& request, std::uint64_t length, std::uint64_t pieces,
                                std::uint64_t slots, std::uint64_t chunk) noexcept {
  const std::uint64_t element = request.element_bytes;
  const std::uint64_t line = std::lcm(element, kCacheLineBytes);
  Pipeline pipeline{.length = length, .pieces = std::max<std::uint64_t>(pieces, 1)};
  if (length == 0) return pipeline;

  const std::uint64_t room = request.scratch_bytes / (pipeline.pieces * slots);
  // Whole cache lines where they fit, so that no two pieces share one; single elements otherwise.
  const std::uint64_t unit = room >= line ? line : element;
  const std::uint64_t limit = room / unit * unit;
  if (limit == 0) return std::nullopt;
  pipeline.chunk =
      std::min({round_up(std::max<std::uint64_t>(chunk, 1), unit), limit, round_up(length, unit)});
  pipeline.stride = pipeline.chunk;
  if (pipeline.chunks() > kMaxFlagValue) return std::nullopt;
  pipeline.slots = std::min(slots, pipeline.chunks());
  return pipeline;
}

namespace {

std::optional<Pipeline> trading_pipeline(const PlanRequest& request, std::uint64_t length) noexcept {
  std::uint64_t wish = request.chunk_bytes;
  if (wish == 0)
    wish = std::max(length < kLongTradeBytes ? kTradedChunkBytes : kLongTradedChunkBytes,
                    length / kMostTradedChunks);
  for (std::uint64_t slots : {2, 1}) {
    auto pipeline = lay_out(request, length, 1, slots, wish);
    if (!pipeline) continue;
    pipeline->lead = pipeline->slots - 1;
    pipeline->trades = true;
    return pipeline;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Pipeline> symmetric_pipeline(const PlanRequest& request, std::uint64_t length,
                                           std::uint64_t pieces) noexcept {
  if (request.ranks == 2) return trading_pipeline(request, length);
  return staged_pipeline(request, length, pieces, 4);
}

std::optional<Pipeline> staged_pipeline(const PlanRequest& request, std::uint64_t length,
                                        std::uint64_t pieces, std::uint64_t deep_slots) noexcept {
  const std::uint64_t wish = preferred_chunk(request, length, pieces);
  auto deep = lay_out(request, length, pieces, deep_slots, wish);
  if (deep) deep->lead = deep->chunks() > 1 ? 1 : 0;
  if (deep && (deep->chunk >= std::min(wish, kShortChunkBytes) || deep->chunks() <= 1)) return deep;
  if (auto shallow = lay_out(request, length, pieces, 2, wish)) return shallow;
  // One slot holds the whole message, or nothing does.
  auto single = lay_out(request, length, pieces, 1, length);
  if (single && single->chunks() > 1) single.reset();
  return single;
}

std::optional<Pipeline> pair_pipeline(const PlanRequest& request) noexcept {
  const auto pieces = static_cast<std::uint64_t>(request.ranks - 1);
  const std::uint64_t wish = preferred_chunk(request, kLargestCachedChunkBytes * kDepth, pieces);
  for (std::uint64_t slots : {4, 2, 1}) {
    // All of scratch, whatever the sizes: a rank knows its own pairs' only.
    auto pipeline = lay_out(request, wish * slots, pieces, slots, wish);
    if (!pipeline || (pipeline->chunk < std::min(wish, kShortChunkBytes) && slots > 1)) continue;
    pipeline->slots = slots;
    pipeline->length = longest_block(request);
    if (pipeline->chunks() > kMaxFlagValue) return std::nullopt;
    return pipeline;
  }
  return std::nullopt;
}

std::optional<Pipeline> one_way_pipeline(const PlanRequest& request, std::uint64_t length,
                                         std::uint64_t pieces) noexcept {
  const std::uint64_t wish = preferred_chunk(request, length, pieces, kSmallestOneWayChunkBytes);
  for (std::uint64_t slots : {8, 4, 2}) {
    auto pipeline = lay_out(request, length, pieces, slots, wish);
    if (pipeline && pipeline->chunk >= std::min(wish, kShortChunkBytes)) return pipeline;
  }
  return lay_out(request, length, pieces, 1, wish);
}

}  // namespace tugline::core

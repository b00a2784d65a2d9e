// SPDX-License-Identifier: Apache-2.0
#include "core/plan/plan.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace tugline::core {

namespace {

template <std::size_t N, class E>
std::string_view lookup(const std::array<std::string_view, N>& names, E value) noexcept {
  const auto index = static_cast<std::size_t>(value);
  return index < N ? names[index] : "?";
}

constexpr std::array<std::string_view, kCollectiveCount> kCollectiveNames = {
    "barrier", "all_reduce", "all_gather", "reduce_scatter", "broadcast",        "all_to_all",  "send_recv",
    "reduce",  "gather",     "scatter",    "all_gather_v",   "reduce_scatter_v", "all_to_all_v"};
constexpr std::array<std::string_view, kStepKindCount> kStepKindNames = {
    "copy", "reduce", "put", "scale", "put_packet", "copy_packet", "reduce_packet", "signal", "wait"};
constexpr std::array<std::string_view, kReductionOrderCount> kReductionOrderNames = {
    "none", "rank_order", "ring_order", "other", "tree_order", "recursive_order", "group_order"};
constexpr std::array<std::string_view, kSpaceCount> kSpaceNames = {"input", "output", "scratch"};

constexpr std::uint64_t kCacheLineBytes = 64;

}  // namespace

std::string_view name_of(Collective collective) noexcept {
  return lookup(kCollectiveNames, collective);
}
std::string_view name_of(StepKind kind) noexcept {
  return lookup(kStepKindNames, kind);
}
std::string_view name_of(ReductionOrder order) noexcept {
  return lookup(kReductionOrderNames, order);
}
std::string_view name_of(Space space) noexcept {
  return lookup(kSpaceNames, space);
}

ByteRange block_of(std::uint64_t bytes, std::uint64_t element_bytes, std::int32_t count,
                   std::int32_t index) noexcept {
  const auto blocks = static_cast<std::uint64_t>(count);
  std::uint64_t unit = std::lcm(element_bytes, kCacheLineBytes);
  if (bytes / unit < blocks) unit = element_bytes;
  const std::uint64_t units = bytes / unit;
  const std::uint64_t each = units / blocks;
  const std::uint64_t larger = units % blocks;
  const auto begin_of = [&](std::uint64_t block) {
    return block == blocks ? bytes : unit * (block * each + std::min(block, larger));
  };
  const auto block = static_cast<std::uint64_t>(index);
  return {begin_of(block), begin_of(block + 1)};
}

std::uint64_t Plan::input_bytes(std::int32_t rank) const noexcept {
  const auto n = static_cast<std::uint64_t>(ranks);
  switch (collective) {
    case Collective::barrier:
      return 0;
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return n * bytes;
    case Collective::scatter:
      return rank == root ? n * bytes : 0;
    case Collective::broadcast:
      return rank == root ? bytes : 0;
    case Collective::send_recv:
      return rank == 0 ? bytes : 0;
    case Collective::all_gather_v:
      return block_bytes(rank, rank);
    case Collective::all_to_all_v:
      return input_begin(rank, ranks);
    case Collective::all_reduce:
    case Collective::all_gather:
    case Collective::reduce:
    case Collective::gather:
    case Collective::reduce_scatter_v:
      return bytes;
  }
  return 0;
}

std::uint64_t Plan::output_bytes(std::int32_t rank) const noexcept {
  const auto n = static_cast<std::uint64_t>(ranks);
  switch (collective) {
    case Collective::barrier:
      return 0;
    case Collective::all_gather:
    case Collective::all_to_all:
      return n * bytes;
    case Collective::gather:
      return rank == root ? n * bytes : 0;
    case Collective::reduce:
      return rank == root ? bytes : 0;
    case Collective::send_recv:
      return rank == 1 ? bytes : 0;
    case Collective::reduce_scatter_v:
      return block_bytes(rank, rank);
    case Collective::all_to_all_v:
      return output_begin(ranks, rank);
    case Collective::all_reduce:
    case Collective::reduce_scatter:
    case Collective::broadcast:
    case Collective::scatter:
    case Collective::all_gather_v:
      return bytes;
  }
  return 0;
}

std::uint64_t Plan::block_bytes(std::int32_t from, std::int32_t to) const noexcept {
  const auto row = collective == Collective::all_to_all_v ? static_cast<std::size_t>(from) : 0;
  return blocks[row * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(to)];
}

std::uint64_t Plan::input_begin(std::int32_t from, std::int32_t to) const noexcept {
  std::uint64_t begin = 0;
  for (std::int32_t before = 0; before < to; ++before) begin += block_bytes(from, before);
  return begin;
}

std::uint64_t Plan::output_begin(std::int32_t from, std::int32_t to) const noexcept {
  std::uint64_t begin = 0;
  for (std::int32_t before = 0; before < from; ++before) begin += block_bytes(before, to);
  return begin;
}

std::uint64_t Plan::shared_offset(Space space, std::int32_t rank) const noexcept {
  const std::uint64_t own_block = static_cast<std::uint64_t>(rank) * bytes;
  switch (collective) {
    case Collective::all_gather:
    case Collective::gather:
      return space == Space::input ? own_block : 0;
    case Collective::reduce_scatter:
    case Collective::scatter:
      return space == Space::output ? own_block : 0;
    case Collective::all_gather_v:
      return space == Space::input ? input_begin(rank, rank) : 0;
    case Collective::reduce_scatter_v:
      return space == Space::output ? input_begin(rank, rank) : 0;
    default:
      return 0;
  }
}

bool Plan::shares_buffer(std::int32_t rank) const noexcept {
  return in_place && input_bytes(rank) > 0 && output_bytes(rank) > 0;
}

}  // namespace tugline::core

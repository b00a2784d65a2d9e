// SPDX-License-Identifier: Apache-2.0
#include "bench/sweep.h"

#include <fmt/format.h>

#include <algorithm>

#include "values.h"

namespace tugline::cli {

using core::Collective;

std::vector<std::uint64_t> sizes_of(const BenchOptions& options) {
  if (!has_data(options.collective)) return {0};
  std::vector<std::uint64_t> sizes;
  std::uint64_t size = options.begin_bytes;
  while (size <= options.end_bytes) {
    sizes.push_back(size);
    std::uint64_t next = 0;
    if (options.step_factor == 0) {
      next = size + options.step_bytes;
    } else {
      next = size == 0 ? 8 : size * options.step_factor;
    }
    if (next <= size) break;  // beyond 64 bits
    size = next;
  }
  return sizes;
}

std::uint64_t Shape::begin_of(int index) const noexcept {
  std::uint64_t begin = 0;
  for (int block = 0; block < index; ++block) begin += blocks[static_cast<std::size_t>(block)];
  return begin;
}

std::uint64_t Shape::between(int from, int to) const noexcept {
  return blocks[(static_cast<std::size_t>(from) + static_cast<std::size_t>(to)) % blocks.size()];
}

std::uint64_t sent_by(Collective collective, const Shape& shape, int rank) noexcept {
  return collective == Collective::all_gather_v ? shape.blocks[static_cast<std::size_t>(rank)]
                                                : shape.send_count;
}

std::uint64_t received_by(Collective collective, const Shape& shape, int rank) noexcept {
  return collective == Collective::reduce_scatter_v ? shape.blocks[static_cast<std::size_t>(rank)]
                                                    : shape.recv_count;
}

Shape shape_of(Collective collective, std::uint64_t bytes, std::uint64_t element_bytes, int ranks) {
  auto n = static_cast<std::uint64_t>(ranks);
  std::uint64_t elements = bytes / element_bytes;
  Shape shape;
  switch (collective) {
    case Collective::barrier:
      return shape;
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::all_gather_v:
    case Collective::reduce_scatter_v:
    case Collective::all_to_all_v:
    case Collective::broadcast:
    case Collective::send_recv:
      shape.count = shape.send_count = shape.recv_count = elements;
      break;
    case Collective::all_gather:
    case Collective::gather:
      shape.count = shape.send_count = elements / n;
      shape.recv_count = shape.count * n;
      break;
    case Collective::reduce_scatter:
    case Collective::scatter:
      shape.count = shape.recv_count = elements / n;
      shape.send_count = shape.count * n;
      break;
    case Collective::all_to_all:
      shape.count = elements / n;
      shape.send_count = shape.recv_count = shape.count * n;
      break;
  }
  if (core::has_blocks(collective)) {
    // Block i is as long as 2 i + 1 of n * n parts, so that all of them have `elements` together.
    std::uint64_t begin = 0;
    for (std::uint64_t i = 1; i <= n; ++i) {
      const std::uint64_t end = elements / (n * n) * (i * i) + elements % (n * n) * (i * i) / (n * n);
      shape.blocks.push_back(end - begin);
      begin = end;
    }
  }
  shape.bytes = std::max(shape.send_count, shape.recv_count) * element_bytes;
  return shape;
}

std::vector<std::string> notes_on_sizes(const BenchOptions& options, int ranks) {
  std::vector<std::string> notes;
  // A hand-written plan has its own size.
  if (!has_data(options.collective) || !options.plan_file.empty()) return notes;
  constexpr int kNamed = 4;
  for (auto type : options.types) {
    int rounded = 0;
    std::string named;
    for (auto size : sizes_of(options)) {
      auto measured = shape_of(options.collective, size, size_of(type), ranks).bytes;
      if (measured == size) continue;
      if (++rounded > kNamed) continue;
      named += fmt::format("{}{} -> {}", named.empty() ? "" : ", ", size, measured);
    }
    if (rounded > kNamed) named += fmt::format(" and {} more", rounded - kNamed);
    if (rounded > 0)
      notes.push_back(
          fmt::format("sizes are rounded down to whole counts of {}: {}", column_name(type), named));
  }
  return notes;
}

std::uint64_t in_place_send_offset(Collective collective, const Shape& shape, int rank) noexcept {
  if (collective == Collective::all_gather_v) return shape.begin_of(rank);
  const bool own_block = collective == Collective::all_gather || collective == Collective::gather;
  return own_block ? shape.count * static_cast<std::uint64_t>(rank) : 0;
}

std::uint64_t in_place_recv_offset(Collective collective, const Shape& shape, int rank) noexcept {
  if (collective == Collective::reduce_scatter_v) return shape.begin_of(rank);
  const bool own_block = collective == Collective::reduce_scatter || collective == Collective::scatter;
  return own_block ? shape.count * static_cast<std::uint64_t>(rank) : 0;
}

bool has_data(Collective collective) noexcept {
  return collective != Collective::barrier;
}

bool has_in_place(Collective collective) noexcept {
  return collective != Collective::send_recv && collective != Collective::barrier;
}

double bus_factor(Collective collective, int ranks) noexcept {
  double n = ranks;
  switch (collective) {
    case Collective::all_reduce:
      return 2 * (n - 1) / n;
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
    case Collective::gather:
    case Collective::scatter:
    case Collective::all_gather_v:
    case Collective::reduce_scatter_v:
    case Collective::all_to_all_v:
      return (n - 1) / n;
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::send_recv:
      return 1;
    case Collective::barrier:
      return 0;
  }
  return 0;
}

}  // namespace tugline::cli

// SPDX-License-Identifier: Apache-2.0
#include "soak/draw.h"

#include <fmt/format.h>

#include <algorithm>

namespace tugline::soak {
namespace {

constexpr std::string_view kNames[] = {
    "all_reduce", "all_gather",   "reduce_scatter",   "reduce",       "gather",  "scatter", "broadcast",
    "all_to_all", "all_gather_v", "reduce_scatter_v", "all_to_all_v", "barrier", "message", "shift"};

std::size_t draw_count(Sequence& random, DataType type, int ranks, std::size_t most_bytes) {
  const auto most = most_bytes / size_of(type) / static_cast<std::size_t>(ranks);
  const auto limit = [&](std::uint64_t bytes) { return std::max<std::uint64_t>(bytes / size_of(type), 2); };
  const auto size = random.below(100);
  const auto count = size < 60   ? random.below(limit(512))
                     : size < 85 ? random.below(limit(std::uint64_t{16} << 10))
                     : size < 96 ? random.below(limit(std::uint64_t{256} << 10))
                                 : random.below(most + 1);
  return std::min<std::size_t>(count, most);
}

/// A number of the draw's own for a pair of ranks.
std::uint64_t hash_of(const Draw& draw, int first, int second) noexcept {
  return Sequence(draw.salt * 4099 + static_cast<std::uint64_t>(first) * 67 +
                  static_cast<std::uint64_t>(second))
      .next();
}

}  // namespace

Sequence sequence_of(std::uint64_t seed, std::initializer_list<std::uint64_t> numbers) noexcept {
  for (const auto number : numbers) seed = Sequence(seed ^ (number + 1) * 0x2545f4914f6cdd1du).next();
  return Sequence(seed);
}

Draw draw_operation(Sequence& random, int ranks, std::size_t most_bytes) {
  Draw draw;
  draw.kind = static_cast<Kind>(random.below(kCollectiveKinds + (ranks > 1 ? 1 : 0)));
  draw.type = static_cast<DataType>(random.below(kDataTypeCount));
  draw.op = static_cast<ReduceOp>(random.below(kReduceOpCount));
  draw.pre_multiplied = random.below(5) == 0;
  if (draw.pre_multiplied) draw.op = ReduceOp::sum;
  draw.symmetric = random.below(2) == 0;
  draw.count = draw_count(random, draw.type, ranks, most_bytes);
  draw.root = static_cast<int>(random.below(static_cast<std::uint64_t>(ranks)));
  if (ranks > 1)
    draw.peer = static_cast<int>(
        (static_cast<std::uint64_t>(draw.root) + 1 + random.below(static_cast<std::uint64_t>(ranks) - 1)) %
        static_cast<std::uint64_t>(ranks));
  draw.salt = random.next();
  return draw;
}

Draw draw_shift(Sequence& random, int ranks, std::size_t most_bytes) {
  Draw draw;
  draw.kind = Kind::shift;
  draw.type = static_cast<DataType>(random.below(kDataTypeCount));
  draw.count = draw_count(random, draw.type, ranks, most_bytes);
  draw.peer = static_cast<int>(random.below(static_cast<std::uint64_t>(ranks)));
  draw.salt = random.next();
  return draw;
}

std::string to_text(const Draw& draw) {
  return fmt::format("{}(count {}, {}, {}{}, root {}, peer {}, salt {})",
                     kNames[static_cast<std::size_t>(draw.kind)], draw.count, name_of(draw.type),
                     draw.pre_multiplied ? "pre-multiplied " : "", name_of(draw.op), draw.root, draw.peer,
                     draw.salt);
}

std::size_t block_count(const Draw& draw, int rank) noexcept {
  return hash_of(draw, rank, 0) % (draw.count + 1);
}

std::size_t block_count(const Draw& draw, int from, int to) noexcept {
  if (draw.symmetric && from > to) std::swap(from, to);
  return hash_of(draw, from, to + 1) % (draw.count + 1);
}

int factor_of(const Draw& draw, int rank) noexcept {
  const int size = 1 + static_cast<int>(hash_of(draw, rank, 1000) % 3);
  const bool negative = draw.type != DataType::u8 && draw.type != DataType::u32 &&
                        draw.type != DataType::u64 && hash_of(draw, rank, 1001) % 2 == 0;
  return negative ? -size : size;
}

}  // namespace tugline::soak

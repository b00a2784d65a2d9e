// SPDX-License-Identifier: Apache-2.0
#include "soak/contents.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "bench/pattern.h"

namespace tugline::soak {
namespace {

/// Contents repeat with this period, prime so that no block size is a multiple of it by habit.
constexpr std::size_t kPeriod = 61;

bool is_unsigned(DataType type) noexcept {
  return type == DataType::u8 || type == DataType::u32 || type == DataType::u64;
}

bool is_integer(DataType type) noexcept {
  return type < DataType::f16;
}

bool reduces(Kind kind) noexcept {
  return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter ||
         kind == Kind::reduce_scatter_v;
}

std::uint64_t random_at(const Draw& draw, int rank, std::size_t place) noexcept {
  return Sequence(draw.salt ^ (static_cast<std::uint64_t>(rank) + 1) * 0x9e3779b97f4a7c15u ^
                  (place + 1) * 0x2545f4914f6cdd1du)
      .next();
}

/// A small number. Sums over 8 ranks times factors of up to 3 stay within an i8, and are exact in bf16.
int contribution(const Draw& draw, int rank, std::size_t place) noexcept {
  const auto random = random_at(draw, rank, place);
  const auto number = [&](int most) {
    const auto size = static_cast<int>(random % static_cast<std::uint64_t>(most + 1));
    return !is_unsigned(draw.type) && (random >> 32 & 1) != 0 ? -size : size;
  };
  switch (draw.op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return number(5);
    case ReduceOp::prod:  // up to 2 to the 6th, whatever the number of ranks
      return rank < 6 ? 1 + static_cast<int>(random & 1) : 1;
    case ReduceOp::min:
    case ReduceOp::max:
      return number(100);
  }
  return 0;
}

/// What the rank's contribution counts as. A double: zero times a negative factor is -0.
double term(const Draw& draw, int rank, std::size_t place) noexcept {
  const double number = contribution(draw, rank, place);
  return draw.pre_multiplied ? number * factor_of(draw, rank) : number;
}

double combined(const Draw& draw, int ranks, std::size_t place) noexcept {
  double total = term(draw, 0, place);
  for (int rank = 1; rank < ranks; ++rank) {
    const double next = term(draw, rank, place);
    switch (draw.op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        total += next;
        break;
      case ReduceOp::prod:
        total *= next;
        break;
      case ReduceOp::min:
        total = std::min(total, next);
        break;
      case ReduceOp::max:
        total = std::max(total, next);
        break;
    }
  }
  if (draw.op != ReduceOp::avg) return total;
  // Integers toward zero; floating point in the type's own arithmetic, which for 16 bits is f32.
  if (is_integer(draw.type)) return static_cast<int>(total) / ranks;
  if (draw.type == DataType::f64) return total / ranks;
  return static_cast<float>(total) / static_cast<float>(ranks);
}

/// One period of a piece's elements, from element 0 of its block on.
std::vector<std::byte> table_of(const Draw& draw, const Piece& piece, int ranks) {
  const std::size_t width = size_of(draw.type);
  const std::size_t entries = std::min(kPeriod, piece.count);
  std::vector<std::byte> table(entries * width);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t place = (i + static_cast<std::size_t>(piece.block) * 17) % kPeriod;
    if (piece.source == kAll) {
      cli::store_as(draw.type, &table[i * width], combined(draw, ranks, place));
    } else if (reduces(draw.kind)) {
      cli::store_as(draw.type, &table[i * width], contribution(draw, piece.source, place));
    } else {
      const std::uint64_t bits = random_at(draw, piece.source, place);
      std::memcpy(&table[i * width], &bits, width);
    }
  }
  return table;
}

}  // namespace

void write_piece(const Draw& draw, const Piece& piece, int ranks, std::byte* buffer) {
  const auto table = table_of(draw, piece, ranks);
  const std::size_t width = size_of(draw.type);
  std::byte* at = buffer + piece.at * width;
  for (std::size_t left = piece.count * width; left != 0;) {
    const std::size_t run = std::min(left, table.size());
    std::memcpy(at, table.data(), run);
    at += run;
    left -= run;
  }
}

std::size_t first_wrong(const Draw& draw, const Piece& piece, int ranks, const std::byte* buffer) {
  const auto table = table_of(draw, piece, ranks);
  const std::size_t width = size_of(draw.type);
  const std::byte* from = buffer + piece.at * width;
  for (std::size_t done = 0; done < piece.count; done += kPeriod) {
    const std::size_t run = std::min(piece.count - done, kPeriod);
    if (std::memcmp(from + done * width, table.data(), run * width) == 0) continue;
    for (std::size_t i = 0; i < run; ++i)
      if (std::memcmp(from + (done + i) * width, &table[i * width], width) != 0) return done + i;
  }
  return piece.count;
}

}  // namespace tugline::soak

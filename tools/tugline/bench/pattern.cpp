// SPDX-License-Identifier: Apache-2.0
#include "bench/pattern.h"

#include <algorithm>
#include <cstring>

#include "bench/float16.h"

namespace tugline::cli {
namespace {

using core::Collective;

/// Prime, so that no block or chunk size is a multiple of it by habit.
constexpr std::uint64_t kPeriod = 4093;

std::uint64_t mix(std::uint64_t value) noexcept {
  // The finaliser of SplitMix64 (Steele, Lea, Flood, 2014).
  value += 0x9E3779B97F4A7C15;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

std::uint64_t random_at(std::uint64_t seed, int rank, std::uint64_t index) noexcept {
  return mix(mix(seed * 257 + static_cast<std::uint64_t>(rank)) + index);
}

bool is_unsigned(DataType type) noexcept {
  return type == DataType::u8 || type == DataType::u32 || type == DataType::u64;
}

bool is_floating(DataType type) noexcept {
  return type == DataType::f16 || type == DataType::bf16 || type == DataType::f32 || type == DataType::f64;
}

/// Largest sum that is exact, whatever the order.
std::int64_t exact_limit(DataType type) noexcept {
  switch (type) {
    case DataType::i8:
      return 127;
    case DataType::u8:
      return 255;
    case DataType::bf16:
      return 256;
    case DataType::f16:
      return 2048;
    default:
      return 1 << 20;
  }
}

template <class T>
void store(std::byte* at, T value) noexcept {
  std::memcpy(at, &value, sizeof value);
}

/// What `rank` contributes to a reduction at `index` of the period.
double contribution(const PatternRequest& r, int rank, std::uint64_t index) noexcept {
  std::uint64_t random = random_at(r.seed, rank, index);
  switch (r.op) {
    case ReduceOp::sum:
    case ReduceOp::avg: {
      std::int64_t limit = exact_limit(r.type);
      if (rank >= limit) return 0;
      auto bound = static_cast<std::uint64_t>(std::clamp<std::int64_t>(limit / r.ranks, 1, 100));
      if (is_unsigned(r.type)) return static_cast<double>(random % (bound + 1));
      return static_cast<double>(random % (2 * bound + 1)) - static_cast<double>(bound);
    }
    case ReduceOp::prod: {
      // At most two threes and two twos in a product, the rest ones: 36 fits every type.
      auto turn =
          (static_cast<std::uint64_t>(rank) + index * 7 + r.seed) % static_cast<std::uint64_t>(r.ranks);
      double size = turn < 2 ? 3 : (turn < 4 ? 2 : 1);
      return !is_unsigned(r.type) && (random & 1) != 0 ? -size : size;
    }
    case ReduceOp::min:
    case ReduceOp::max:
      if (is_floating(r.type)) return 0.25 * (static_cast<double>(random % 511) - 255);
      return static_cast<double>(random % 101) - (is_unsigned(r.type) ? 0 : 50);
  }
  return 0;
}

double combine(ReduceOp op, double left, double right) noexcept {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return left + right;
    case ReduceOp::prod:
      return left * right;
    case ReduceOp::min:
      return std::min(left, right);
    case ReduceOp::max:
      return std::max(left, right);
  }
  return 0;
}

/// `sum / ranks` as the type divides: integers toward zero, 16-bit types and f32 in f32, f64 in f64.
double average(DataType type, double sum, int ranks) noexcept {
  if (!is_floating(type)) return static_cast<double>(static_cast<std::int64_t>(sum) / ranks);
  if (type == DataType::f64) return sum / ranks;
  return static_cast<float>(sum) / static_cast<float>(ranks);
}

using Table = std::vector<std::byte>;

/// One period of what `rank` sends.
Table input_table(const PatternRequest& r, int rank) {
  std::size_t width = size_of(r.type);
  Table table(kPeriod * width);
  for (std::uint64_t i = 0; i < kPeriod; ++i) {
    if (reduces(r.collective)) {
      store_as(r.type, &table[i * width], contribution(r, rank, i));
    } else {
      std::uint64_t bits = random_at(r.seed, rank, i);
      std::memcpy(&table[i * width], &bits, width);
    }
  }
  return table;
}

/// One period of what a reduction gives.
Table reduced_table(const PatternRequest& r) {
  std::size_t width = size_of(r.type);
  Table table(kPeriod * width);
  for (std::uint64_t i = 0; i < kPeriod; ++i) {
    double value = contribution(r, 0, i);
    for (int rank = 1; rank < r.ranks; ++rank) value = combine(r.op, value, contribution(r, rank, i));
    if (r.op == ReduceOp::avg) value = average(r.type, value, r.ranks);
    store_as(r.type, &table[i * width], value);
  }
  return table;
}

/// Where block `block` of a sender's input starts in the period; two blocks never look alike.
std::uint64_t phase_of(int block, std::uint64_t count) noexcept {
  return static_cast<std::uint64_t>(block) * (count % kPeriod + 31) % kPeriod;
}

/// Calls use(first element of the run, elements, offset in the table) for runs that do not wrap.
template <class Use>
void each_run(std::uint64_t phase, std::uint64_t count, Use use) {
  for (std::uint64_t done = 0; done < count;) {
    std::uint64_t at = (phase + done) % kPeriod;
    std::uint64_t run = std::min(count - done, kPeriod - at);
    use(done, run, at);
    done += run;
  }
}

void write_run(const Table& table, std::size_t width, std::uint64_t phase, std::uint64_t count,
               std::byte* to) {
  each_run(phase, count, [&](std::uint64_t first, std::uint64_t run, std::uint64_t at) {
    std::memcpy(to + first * width, &table[at * width], run * width);
  });
}

std::uint64_t compare_run(const Table& table, std::size_t width, std::uint64_t phase, std::uint64_t count,
                          const std::byte* from) {
  std::uint64_t wrong = 0;
  each_run(phase, count, [&](std::uint64_t first, std::uint64_t run, std::uint64_t at) {
    if (std::memcmp(from + first * width, &table[at * width], run * width) == 0) return;
    for (std::uint64_t i = 0; i < run; ++i) {
      wrong += std::memcmp(from + (first + i) * width, &table[(at + i) * width], width) != 0 ? 1 : 0;
    }
  });
  return wrong;
}

}  // namespace

void store_as(DataType type, std::byte* at, double value) noexcept {
  switch (type) {
    case DataType::i8:
      return store(at, static_cast<std::int8_t>(value));
    case DataType::u8:
      return store(at, static_cast<std::uint8_t>(value));
    case DataType::i32:
      return store(at, static_cast<std::int32_t>(value));
    case DataType::u32:
      return store(at, static_cast<std::uint32_t>(value));
    case DataType::i64:
      return store(at, static_cast<std::int64_t>(value));
    case DataType::u64:
      return store(at, static_cast<std::uint64_t>(value));
    case DataType::f16:
      return store(at, to_f16_bits(static_cast<float>(value)));
    case DataType::bf16:
      return store(at, to_bf16_bits(static_cast<float>(value)));
    case DataType::f32:
      return store(at, static_cast<float>(value));
    case DataType::f64:
      return store(at, value);
  }
}

void fill_input(const PatternRequest& r, std::byte* input) {
  std::size_t width = size_of(r.type);
  Table table = input_table(r, r.rank);
  bool blocks = r.shape.send_count != r.shape.count;
  if (r.collective == Collective::all_gather_v)
    return write_run(table, width, 0, r.shape.blocks[static_cast<std::size_t>(r.rank)], input);
  if (r.collective == Collective::all_to_all_v) {
    for (int to = 0; to < r.ranks; ++to) {
      const std::uint64_t count = r.shape.between(r.rank, to);
      write_run(table, width, phase_of(to, r.shape.count), count, input);
      input += count * width;
    }
    return;
  }
  if (!blocks) return write_run(table, width, 0, r.shape.send_count, input);
  for (int block = 0; block < r.ranks; ++block) {
    auto start = static_cast<std::uint64_t>(block) * r.shape.count;
    write_run(table, width, phase_of(block, r.shape.count), r.shape.count, input + start * width);
  }
}

std::uint64_t count_wrong(const PatternRequest& r, const std::byte* output) {
  std::size_t width = size_of(r.type);
  std::uint64_t count = r.shape.count;
  switch (r.collective) {
    case Collective::barrier:
      return 0;
    case Collective::all_reduce:
      return compare_run(reduced_table(r), width, 0, count, output);
    case Collective::reduce_scatter:
      // One rank alone has a single block, which starts the period.
      return compare_run(reduced_table(r), width, phase_of(r.rank, count), count, output);
    case Collective::reduce_scatter_v: {
      const std::uint64_t phase = r.shape.begin_of(r.rank) % kPeriod;
      return compare_run(reduced_table(r), width, phase, r.shape.blocks[static_cast<std::size_t>(r.rank)],
                         output);
    }
    case Collective::all_gather_v:
    case Collective::all_to_all_v: {
      const bool pairs = r.collective == Collective::all_to_all_v;
      std::uint64_t wrong = 0;
      for (int from = 0; from < r.ranks; ++from) {
        const std::uint64_t length =
            pairs ? r.shape.between(from, r.rank) : r.shape.blocks[static_cast<std::size_t>(from)];
        wrong +=
            compare_run(input_table(r, from), width, pairs ? phase_of(r.rank, count) : 0, length, output);
        output += length * width;
      }
      return wrong;
    }
    case Collective::broadcast:
      return compare_run(input_table(r, r.root), width, 0, count, output);
    case Collective::send_recv:
      return compare_run(input_table(r, (r.rank + r.ranks - 1) % r.ranks), width, 0, count, output);
    case Collective::reduce:
      if (r.rank != r.root) return 0;
      return compare_run(reduced_table(r), width, 0, count, output);
    case Collective::scatter:
      return compare_run(input_table(r, r.root), width, phase_of(r.rank, count), count, output);
    case Collective::gather:
      if (r.rank != r.root) return 0;
      [[fallthrough]];
    case Collective::all_gather:
    case Collective::all_to_all: {
      std::uint64_t wrong = 0;
      for (int sender = 0; sender < r.ranks; ++sender) {
        std::uint64_t phase = r.collective == Collective::all_to_all ? phase_of(r.rank, count) : 0;
        auto start = static_cast<std::uint64_t>(sender) * count;
        wrong += compare_run(input_table(r, sender), width, phase, count, output + start * width);
      }
      return wrong;
    }
  }
  return 0;
}

void fill_plain(DataType type, std::byte* buffer, std::uint64_t count, std::uint64_t round) {
  // A buffer need not be aligned as its elements are.
  constexpr std::size_t kTileBytes = 4096;
  const std::size_t width = size_of(type);
  const std::size_t bytes = count * width;
  std::byte tile[kTileBytes];
  const std::size_t tile_bytes = std::min(bytes, kTileBytes);
  for (std::size_t at = 0; at < tile_bytes; at += width)
    store_as(type, tile + at, static_cast<double>(1 + round % 3));
  for (std::size_t at = 0; at < bytes; at += kTileBytes)
    std::memcpy(buffer + at, tile, std::min(kTileBytes, bytes - at));
}

}  // namespace tugline::cli

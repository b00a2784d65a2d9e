// SPDX-License-Identifier: Apache-2.0
// The bench's inputs and reference, against a plain implementation of every collective.
#include <gtest/gtest.h>

#include <cstring>

#include "bench/float16.h"
#include "bench/pattern.h"

namespace tugline::cli {
namespace {

using core::Collective;
using Bytes = std::vector<std::byte>;

float half_to_float(std::uint16_t bits) {
  int exponent = (bits >> 10) & 31;
  float units = static_cast<float>(bits & 1023) + (exponent > 0 ? 1024.0F : 0.0F);
  float size = std::ldexp(units, std::max(exponent, 1) - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

double load(DataType type, const std::byte* at) {
  auto as = [at]<class T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (type) {
    case DataType::i8:
      return as(std::int8_t{});
    case DataType::u8:
      return as(std::uint8_t{});
    case DataType::i32:
      return as(std::int32_t{});
    case DataType::u32:
      return as(std::uint32_t{});
    case DataType::i64:
      return static_cast<double>(as(std::int64_t{}));
    case DataType::u64:
      return static_cast<double>(as(std::uint64_t{}));
    case DataType::f16:
      return half_to_float(as(std::uint16_t{}));
    case DataType::bf16:
      return std::bit_cast<float>(static_cast<std::uint32_t>(as(std::uint16_t{})) << 16);
    case DataType::f32:
      return as(float{});
    case DataType::f64:
      return as(double{});
  }
  return 0;
}

double reduce(const PatternRequest& r, const std::vector<Bytes>& inputs, std::uint64_t index) {
  std::size_t width = size_of(r.type);
  double value = load(r.type, &inputs[0][index * width]);
  for (int rank = 1; rank < r.ranks; ++rank) {
    double next = load(r.type, &inputs[static_cast<std::size_t>(rank)][index * width]);
    switch (r.op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        value += next;
        break;
      case ReduceOp::prod:
        value *= next;
        break;
      case ReduceOp::min:
        value = std::min(value, next);
        break;
      case ReduceOp::max:
        value = std::max(value, next);
        break;
    }
  }
  return value;
}

PatternRequest request_of(Collective collective, DataType type, ReduceOp op, int ranks, std::uint64_t bytes) {
  PatternRequest request{.collective = collective, .type = type, .op = op, .ranks = ranks, .seed = 11};
  request.shape = shape_of(collective, bytes, size_of(type), ranks);
  request.root = ranks - 1;
  return request;
}

std::vector<Bytes> inputs_of(PatternRequest request) {
  std::vector<Bytes> inputs;
  for (request.rank = 0; request.rank < request.ranks; ++request.rank) {
    inputs.emplace_back(request.shape.send_count * size_of(request.type));
    fill_input(request, inputs.back().data());
  }
  return inputs;
}

/// The output of `rank` of a collective that only moves data, by its definition.
Bytes moved(const PatternRequest& r, const std::vector<Bytes>& inputs) {
  std::size_t block = r.shape.count * size_of(r.type);
  Bytes output;
  auto take = [&](int from, std::size_t at) {
    const auto& input = inputs[static_cast<std::size_t>(from)];
    output.insert(output.end(), input.begin() + static_cast<std::ptrdiff_t>(at),
                  input.begin() + static_cast<std::ptrdiff_t>(at + block));
  };
  auto take_run = [&](int from, std::uint64_t first, std::uint64_t count) {
    const auto& input = inputs[static_cast<std::size_t>(from)];
    const std::size_t width = size_of(r.type);
    output.insert(output.end(), input.begin() + static_cast<std::ptrdiff_t>(first * width),
                  input.begin() + static_cast<std::ptrdiff_t>((first + count) * width));
  };
  for (int from = 0; core::has_blocks(r.collective) && from < r.ranks; ++from) {
    if (r.collective == Collective::all_gather_v)
      take_run(from, 0, r.shape.blocks[static_cast<std::size_t>(from)]);
    std::uint64_t first = 0;
    for (int to = 0; to < r.rank; ++to) first += r.shape.between(from, to);
    if (r.collective == Collective::all_to_all_v) take_run(from, first, r.shape.between(from, r.rank));
  }
  if (r.collective == Collective::broadcast) take(r.root, 0);
  if (r.collective == Collective::scatter) take(r.root, static_cast<std::size_t>(r.rank) * block);
  if (r.collective == Collective::send_recv) take((r.rank + r.ranks - 1) % r.ranks, 0);
  for (int sender = 0; sender < r.ranks; ++sender) {
    if (r.collective == Collective::all_gather || r.collective == Collective::gather) take(sender, 0);
    if (r.collective == Collective::all_to_all) take(sender, static_cast<std::size_t>(r.rank) * block);
  }
  return output;
}

TEST(Pattern, AcceptsRightMovesAndCountsWrongElements) {
  for (auto collective :
       {Collective::all_gather, Collective::broadcast, Collective::all_to_all, Collective::send_recv,
        Collective::gather, Collective::scatter, Collective::all_gather_v, Collective::all_to_all_v}) {
    for (int ranks : {1, 2, 3, 5}) {
      for (int t = 0; t < kDataTypeCount; ++t) {
        auto request = request_of(collective, static_cast<DataType>(t), ReduceOp::sum, ranks, 50'000);
        auto inputs = inputs_of(request);
        for (request.rank = 0; request.rank < ranks; ++request.rank) {
          auto output = moved(request, inputs);
          ASSERT_EQ(output.size(), request.shape.recv_count * size_of(request.type));
          EXPECT_EQ(count_wrong(request, output.data()), 0U);
          output[output.size() / 2] ^= std::byte{1};
          const bool has_output = collective != Collective::gather || request.rank == request.root;
          EXPECT_EQ(count_wrong(request, output.data()), has_output ? 1U : 0U);
        }
      }
    }
  }
}

TEST(Pattern, ReductionsAreExactInEveryTypeAndOrder) {
  for (int t = 0; t < kDataTypeCount; ++t) {
    auto type = static_cast<DataType>(t);
    for (int o = 0; o < kReduceOpCount; ++o) {
      auto op = static_cast<ReduceOp>(o);
      for (int ranks : {1, 2, 3, 7, 200}) {
        auto request = request_of(Collective::all_reduce, type, op, ranks, 300 * size_of(type));
        auto inputs = inputs_of(request);
        Bytes output(request.shape.recv_count * size_of(type));
        // Sums, products and extremes: the double result must be a value of the type, bit for bit.
        if (op != ReduceOp::avg) {
          for (std::uint64_t i = 0; i < request.shape.count; ++i) {
            double value = reduce(request, inputs, i);
            std::byte* at = &output[i * size_of(type)];
            store_as(type, at, value);
            ASSERT_EQ(load(type, at), value) << name_of(type) << ' ' << name_of(op) << ' ' << ranks;
          }
          EXPECT_EQ(count_wrong(request, output.data()), 0U);
        } else {
          for (std::uint64_t i = 0; i < request.shape.count; ++i) {
            double sum = reduce(request, inputs, i);
            bool floating = type == DataType::f16 || type == DataType::bf16 || type == DataType::f32;
            double value = floating ? static_cast<float>(sum) / static_cast<float>(ranks) : sum / ranks;
            if (!floating && type != DataType::f64) value = std::trunc(value);
            store_as(type, &output[i * size_of(type)], value);
          }
          EXPECT_EQ(count_wrong(request, output.data()), 0U) << name_of(type) << ' ' << ranks;
        }
        output[0] ^= std::byte{1};
        EXPECT_EQ(count_wrong(request, output.data()), 1U);
      }
    }
  }
}

TEST(Pattern, ReduceScatterTellsBlocksApart) {
  auto request = request_of(Collective::reduce_scatter, DataType::i32, ReduceOp::sum, 3, 3 * 4093 * 4 * 2);
  auto inputs = inputs_of(request);
  std::size_t block = request.shape.count;
  for (request.rank = 0; request.rank < 3; ++request.rank) {
    Bytes output(block * 4);
    for (int shift : {0, 1}) {
      auto from = static_cast<std::uint64_t>((request.rank + shift) % 3) * block;
      for (std::uint64_t i = 0; i < block; ++i)
        store_as(request.type, &output[i * 4], reduce(request, inputs, from + i));
      if (shift == 0) {
        EXPECT_EQ(count_wrong(request, output.data()), 0U);
      } else {
        EXPECT_GT(count_wrong(request, output.data()), block / 2);
      }
    }
  }
}

TEST(Pattern, AnotherSeedGivesOtherInputs) {
  auto request = request_of(Collective::all_gather, DataType::u8, ReduceOp::sum, 2, 4096);
  auto first = inputs_of(request);
  request.seed += 1;
  EXPECT_NE(first, inputs_of(request));
}

TEST(Float16, RoundsToNearestEven) {
  EXPECT_EQ(to_f16_bits(1.0F), 0x3C00);
  EXPECT_EQ(to_f16_bits(-2.0F), 0xC000);
  EXPECT_EQ(to_f16_bits(65504.0F), 0x7BFF);
  EXPECT_EQ(to_f16_bits(65520.0F), 0x7C00);
  EXPECT_EQ(to_f16_bits(1.0F + 1.0F / 2048), 0x3C00);        // tie, stays even
  EXPECT_EQ(to_f16_bits(1.0F + 3.0F / 2048), 0x3C02);        // tie, goes to even
  EXPECT_EQ(to_f16_bits(std::ldexp(1.0F, -24)), 0x0001);     // smallest subnormal
  EXPECT_EQ(to_f16_bits(std::ldexp(1023.9F, -24)), 0x0400);  // carries into the smallest normal
  EXPECT_EQ(to_f16_bits(-0.0F), 0x8000);
  EXPECT_EQ(to_bf16_bits(1.0F), 0x3F80);
  EXPECT_EQ(to_bf16_bits(1.0F + 1.0F / 256), 0x3F80);
  EXPECT_EQ(to_bf16_bits(1.0F + 3.0F / 256), 0x3F82);
  for (int bits = 0; bits < 0x7C00; ++bits) {
    ASSERT_EQ(to_f16_bits(half_to_float(static_cast<std::uint16_t>(bits))), bits);
  }
}

TEST(Sweep, SizesFollowNcclTests) {
  BenchOptions options;
  options.begin_bytes = 0;
  options.end_bytes = 600;
  options.step_factor = 4;
  EXPECT_EQ(sizes_of(options), (std::vector<std::uint64_t>{0, 8, 32, 128, 512}));
  options.step_factor = 0;
  options.step_bytes = 200;
  EXPECT_EQ(sizes_of(options), (std::vector<std::uint64_t>{0, 200, 400, 600}));
  options.begin_bytes = options.end_bytes = ~std::uint64_t{0};
  EXPECT_EQ(sizes_of(options).size(), 1U);
}

// What a rank writes before a call and what the call writes: all of it inside the one buffer.
TEST(Sweep, InPlaceCallsStayInsideTheirBuffer) {
  for (int c = 0; c <= static_cast<int>(Collective::all_to_all_v); ++c) {
    const auto collective = static_cast<Collective>(c);
    if (!has_in_place(collective)) continue;
    for (int ranks = 1; ranks <= 9; ++ranks) {
      const auto shape = shape_of(collective, 10'007, 4, ranks);
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_LE(in_place_send_offset(collective, shape, rank) + sent_by(collective, shape, rank),
                  shape.bytes / 4)
            << core::name_of(collective) << " rank " << rank << " of " << ranks;
        EXPECT_LE(in_place_recv_offset(collective, shape, rank) + received_by(collective, shape, rank),
                  shape.bytes / 4)
            << core::name_of(collective) << " rank " << rank << " of " << ranks;
      }
    }
  }
}

TEST(Sweep, ShapesAndFactorsFollowNcclTests) {
  auto gather = shape_of(Collective::all_gather, 1024, 4, 3);
  EXPECT_EQ(gather.count, 85U);
  EXPECT_EQ(gather.send_count, 85U);
  EXPECT_EQ(gather.recv_count, 255U);
  EXPECT_EQ(gather.bytes, 1020U);
  auto scatter = shape_of(Collective::reduce_scatter, 1024, 4, 2);
  EXPECT_EQ(scatter.send_count, 256U);
  EXPECT_EQ(scatter.recv_count, 128U);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::broadcast, 4), 1);
  auto uneven = shape_of(Collective::all_gather_v, 1024, 4, 3);
  EXPECT_EQ(uneven.blocks, (std::vector<std::size_t>{28, 85, 143}));
  EXPECT_EQ(uneven.begin_of(3), 256U);
  EXPECT_EQ(in_place_send_offset(Collective::all_gather_v, uneven, 2), 113U);
  EXPECT_EQ(in_place_recv_offset(Collective::reduce_scatter_v, uneven, 1), 28U);
  EXPECT_EQ(uneven.between(1, 2), uneven.between(2, 1));
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_to_all_v, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::reduce, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::scatter, 4), 0.75);
  EXPECT_EQ(in_place_send_offset(Collective::gather, shape_of(Collective::gather, 1024, 4, 3), 2), 170U);
  EXPECT_EQ(in_place_recv_offset(Collective::scatter, scatter, 1), 128U);
  EXPECT_EQ(in_place_send_offset(Collective::all_gather, gather, 2), 170U);
  EXPECT_EQ(in_place_recv_offset(Collective::reduce_scatter, scatter, 1), 128U);
}

}  // namespace
}  // namespace tugline::cli

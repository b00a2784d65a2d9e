// SPDX-License-Identifier: Apache-2.0
// Every instruction set gives the same bits as plain arithmetic, for every type and operator, in every
// aliasing.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "comm/kernels_host/reduce.h"
#include "comm/kernels_host/stream.h"

namespace tugline::comm {
namespace {

void reduce_two(ReduceKernel kernel, void* to, const void* a, const void* b, std::size_t count) {
  const void* operands[] = {a, b};
  kernel(to, operands, 2, count);
}

// Slow, obvious f16: picks the nearest of all 65536 values, ties to even mantissa.
double half_value(std::uint16_t bits) {
  const int sign = bits >> 15, exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double magnitude = exponent == 31  ? (mantissa ? std::nan("") : std::numeric_limits<double>::infinity())
                     : exponent == 0 ? std::ldexp(mantissa, -24)
                                     : std::ldexp(1024 + mantissa, exponent - 25);
  return sign ? -magnitude : magnitude;
}

std::uint16_t nearest_half(float value) {
  if (std::isnan(value)) return 0x7e00;
  const double magnitude = std::fabs(static_cast<double>(value));
  std::uint16_t best = 0;
  // Binary search over the monotone non-negative finite patterns.
  std::uint16_t low = 0, high = 0x7bff;
  while (low < high) {
    auto middle = static_cast<std::uint16_t>((low + high + 1) / 2);
    if (half_value(middle) <= magnitude)
      low = middle;
    else
      high = static_cast<std::uint16_t>(middle - 1);
  }
  best = low;
  const double below = half_value(low);
  const double above = low == 0x7bff ? 65536.0 : half_value(static_cast<std::uint16_t>(low + 1));
  if (magnitude - below > above - magnitude || (magnitude - below == above - magnitude && (low & 1)))
    best = static_cast<std::uint16_t>(low + 1);
  return static_cast<std::uint16_t>(best | (std::signbit(value) ? 0x8000 : 0));
}

std::vector<const KernelTable*> tables() {
  std::size_t count = 0;
  const auto* all = kernel_tables(count);
  return {all, all + count};
}

TEST(Kernels, HalfSumsRoundToNearestEven) {
  std::mt19937 random(7);
  for (const auto* table : tables()) {
    for (int round = 0; round < 2000; ++round) {
      std::uint16_t a[37], b[37], got[37];
      for (int i = 0; i < 37; ++i) {
        a[i] = static_cast<std::uint16_t>(random());
        b[i] = static_cast<std::uint16_t>(random());
      }
      reduce_two(table->reduce[static_cast<int>(DataType::f16)][0], got, a, b, 37);
      for (int i = 0; i < 37; ++i) {
        const float exact = static_cast<float>(half_value(a[i])) + static_cast<float>(half_value(b[i]));
        if (std::isnan(exact)) {
          EXPECT_TRUE(std::isnan(half_value(got[i]))) << table->name;
        } else {
          EXPECT_EQ(got[i], nearest_half(exact)) << table->name << " " << a[i] << " + " << b[i];
        }
      }
    }
  }
}

TEST(Kernels, EveryHalfPatternSurvivesARoundTrip) {
  for (const auto* table : tables()) {
    std::vector<std::uint16_t> all(65536), zero(65536, 0x8000), got(65536);  // x + -0 = x
    for (int i = 0; i < 65536; ++i) all[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(i);
    reduce_two(table->reduce[static_cast<int>(DataType::f16)][0], got.data(), all.data(), zero.data(),
               all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (std::isnan(half_value(all[i])))
        EXPECT_TRUE(std::isnan(half_value(got[i])));
      else
        ASSERT_EQ(got[i], all[i]) << table->name;
    }
  }
}

template <class T>
T plain(int op, T a, T b) {
  switch (op) {
    case 0:
      return static_cast<T>(a + b);
    case 1:
      return static_cast<T>(a * b);
    case 2:
      return b < a ? b : a;
    default:
      return a < b ? b : a;
  }
}

template <class T>
void check_plain(DataType type) {
  std::mt19937_64 random(static_cast<unsigned>(type) + 1);
  for (const auto* table : tables()) {
    for (int op = 0; op < 4; ++op) {
      for (std::size_t count : {0u, 1u, 7u, 64u, 1001u}) {
        std::vector<T> a(count), b(count), want(count), got(count);
        for (std::size_t i = 0; i < count; ++i) {
          if constexpr (std::is_floating_point_v<T>) {
            a[i] = static_cast<T>(static_cast<std::int64_t>(random())) / T(1e10);
            b[i] = static_cast<T>(static_cast<std::int64_t>(random())) / T(1e10);
          } else {
            a[i] = static_cast<T>(random());
            b[i] = static_cast<T>(random());
          }
          if constexpr (std::is_signed_v<T> && std::is_integral_v<T>) {
            using Wrapping = std::make_unsigned_t<T>;
            want[i] = op < 2 ? static_cast<T>(plain<Wrapping>(op, static_cast<Wrapping>(a[i]),
                                                              static_cast<Wrapping>(b[i])))
                             : plain<T>(op, a[i], b[i]);
          } else {
            want[i] = plain<T>(op, a[i], b[i]);
          }
        }
        auto kernel = table->reduce[static_cast<int>(type)][op];
        reduce_two(kernel, got.data(), a.data(), b.data(), count);
        EXPECT_EQ(got, want) << table->name << " " << name_of(type) << " op " << op;
        auto left = a;
        reduce_two(kernel, left.data(), left.data(), b.data(), count);
        EXPECT_EQ(left, want);
        auto right = b;
        reduce_two(kernel, right.data(), a.data(), right.data(), count);
        EXPECT_EQ(right, want);
      }
    }
  }
}

TEST(Kernels, PlainTypes) {
  check_plain<std::int8_t>(DataType::i8);
  check_plain<std::uint8_t>(DataType::u8);
  check_plain<std::int32_t>(DataType::i32);
  check_plain<std::uint32_t>(DataType::u32);
  check_plain<std::int64_t>(DataType::i64);
  check_plain<std::uint64_t>(DataType::u64);
  check_plain<float>(DataType::f32);
  check_plain<double>(DataType::f64);
}

// Many operands at once give the bits of one after the other, whichever of them the destination is.
TEST(Kernels, ManyOperandsAreCombinedInOrder) {
  std::mt19937 random(3);
  for (const auto* table : tables()) {
    for (const std::size_t count : {1u, 100u, 5000u}) {
      for (std::size_t ranks = 3; ranks <= 9; ++ranks) {
        std::vector<std::vector<float>> values(ranks, std::vector<float>(count));
        for (auto& one : values)
          for (auto& value : one) value = static_cast<float>(random()) / 1e6f;
        std::vector<float> want = values[0];
        for (std::size_t rank = 1; rank < ranks; ++rank)
          for (std::size_t i = 0; i < count; ++i) want[i] += values[rank][i];
        for (std::size_t at = 0; at <= ranks; ++at) {
          auto copies = values;
          std::vector<float> apart(count);
          std::vector<const void*> operands;
          for (const auto& copy : copies) operands.push_back(copy.data());
          float* to = at == ranks ? apart.data() : copies[at].data();
          table->reduce[static_cast<int>(DataType::f32)][0](to, operands.data(), ranks, count);
          EXPECT_EQ(std::memcmp(to, want.data(), count * sizeof(float)), 0)
              << table->name << " destination " << at << " of " << ranks << " count " << count;
        }
      }
    }
  }
}

TEST(Kernels, StreamingCopiesEveryByteAndNoOther) {
  std::vector<unsigned char> from(1000), want(1200), got;
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 31 + i / 251);
  for (const auto* table : tables()) {
    for (const std::size_t bytes : {0u, 1u, 63u, 64u, 65u, 200u, 900u}) {
      for (std::size_t to_offset = 0; to_offset < 130; to_offset += 13) {
        for (const std::size_t from_offset : {0u, 1u, 64u}) {
          want.assign(1200, 0xee);
          std::memcpy(want.data() + to_offset, from.data() + from_offset, bytes);
          got.assign(1200, 0xee);
          table->stream(got.data() + to_offset, from.data() + from_offset, bytes);
          stream_fence();
          ASSERT_EQ(got, want) << table->name << " " << bytes << " bytes to " << to_offset << " from "
                               << from_offset;
        }
      }
    }
  }
}

TEST(Kernels, ManyHalfOperandsAreRoundedOnce) {
  for (const auto* table : tables()) {
    // 2048 + 1 + 1: rounding after each addition would stay at 2048.
    const std::uint16_t big = 0x6800, one = 0x3c00;
    const void* operands[] = {&big, &one, &one};
    std::uint16_t got = 0;
    table->reduce[static_cast<int>(DataType::f16)][0](&got, operands, 3, 1);
    EXPECT_EQ(half_value(got), 2050.0) << table->name;
    const std::uint16_t wide = 0x4380, small = 0x3f80;  // 256 and 1 in bf16, whose step there is 2
    const void* others[] = {&wide, &small, &small};
    table->reduce[static_cast<int>(DataType::bf16)][0](&got, others, 3, 1);
    EXPECT_EQ(got, 0x4381) << table->name;
  }
}

TEST(Kernels, BFloatRoundsToNearestEvenAndKeepsNaN) {
  for (const auto* table : tables()) {
    const std::uint16_t one = 0x3f80, tiny = 0x3b80, nan = 0x7fa0, odd = 0x3f81;  // 1, 2^-8, NaN, 1 + 2^-7
    std::uint16_t got = 0;
    reduce_two(table->reduce[static_cast<int>(DataType::bf16)][0], &got, &one, &tiny, 1);
    EXPECT_EQ(got, 0x3f80) << "1 + 2^-8 is a tie and goes to even";
    reduce_two(table->reduce[static_cast<int>(DataType::bf16)][0], &got, &odd, &tiny, 1);
    EXPECT_EQ(got, 0x3f82) << "1 + 2^-7 + 2^-8 is a tie and goes to even";
    reduce_two(table->reduce[static_cast<int>(DataType::bf16)][0], &got, &nan, &one, 1);
    EXPECT_TRUE((got & 0x7f80) == 0x7f80 && (got & 0x7f) != 0) << "NaN stays NaN";
  }
}

// Slow, obvious bf16: of the two neighbours the nearer one, ties to the even one.
float bfloat_value(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

std::uint16_t nearest_bfloat(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  const auto below = static_cast<std::uint16_t>(bits >> 16);
  const std::uint32_t rest = bits & 0xffff;
  if (rest > 0x8000 || (rest == 0x8000 && (below & 1) != 0)) return static_cast<std::uint16_t>(below + 1);
  return below;
}

void expect_bfloats(const std::vector<std::uint16_t>& got, const std::vector<float>& want, const char* what) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool right =
        std::isnan(want[i]) ? std::isnan(bfloat_value(got[i])) : got[i] == nearest_bfloat(want[i]);
    ASSERT_TRUE(right) << what << ", pattern " << i << ": " << got[i] << " for " << want[i];
  }
}

// Every pattern with partners that make ties, carries into the exponent, infinities and NaN.
TEST(Kernels, EveryBFloatPatternIsRoundedToNearestEvenAndNaNStays) {
  constexpr std::size_t kPatterns = 65536;
  std::vector<std::uint16_t> all(kPatterns), partner(kPatterns), got(kPatterns);
  for (std::size_t i = 0; i < kPatterns; ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<float> want(kPatterns);
  const auto each = [&](auto&& value_of) {
    for (std::size_t i = 0; i < kPatterns; ++i)
      want[i] = value_of(bfloat_value(all[i]), bfloat_value(partner[i]));
  };
  for (const auto* table : tables()) {
    const auto& reduce = table->reduce[static_cast<int>(DataType::bf16)];
    for (std::uint16_t other : {0x3f81, 0x3b80, 0xbf81, 0x7f7f, 0xff80, 0x7fff, 0xffa0, 0x0001}) {
      for (std::size_t i = 0; i < kPatterns; ++i) partner[i] = static_cast<std::uint16_t>(other + i % 3);
      const auto check = [&](int op, const char* name, auto&& value_of) {
        reduce_two(reduce[op], got.data(), all.data(), partner.data(), kPatterns);
        each(value_of);
        expect_bfloats(got, want, name);
      };
      check(0, "sum", [](float a, float b) { return a + b; });
      check(1, "prod", [](float a, float b) { return a * b; });
      check(2, "min", [](float a, float b) { return b < a || std::isnan(b) ? b : a; });
      check(3, "max", [](float a, float b) { return a < b || std::isnan(b) ? b : a; });
    }
    std::fill(partner.begin(), partner.end(), std::uint16_t{0});
    for (std::uint32_t factor : {0x3fc00000u, 0x3f800001u, 0x7fffffffu, 0xffc0ffffu, 0x7f800000u}) {
      float by = 0;
      std::memcpy(&by, &factor, sizeof(by));
      table->multiply[static_cast<int>(DataType::bf16)](got.data(), all.data(), kPatterns, factor);
      each([by](float a, float) { return a * by; });
      expect_bfloats(got, want, "multiply");
    }
    got = all;
    table->scale[static_cast<int>(DataType::bf16)](got.data(), kPatterns, 3);
    each([](float a, float) { return a / 3.0f; });
    expect_bfloats(got, want, "scale");
  }
}

// NaN at any of three operands, in the vectors and behind them.
template <class T>
void expect_nan_stays(DataType type, T nan, T number) {
  constexpr std::size_t kCount = 131;
  for (const auto* table : tables()) {
    for (int op : {2, 3}) {
      for (std::size_t who = 0; who < 3; ++who) {
        std::vector<std::vector<T>> inputs(3, std::vector<T>(kCount, number));
        for (std::size_t i = 0; i < kCount; i += 3) inputs[who][i] = nan;
        std::vector<T> got(kCount);
        for (std::size_t operands : {std::size_t{2}, std::size_t{3}}) {
          if (who >= operands) continue;
          const void* pointers[] = {inputs[0].data(), inputs[1].data(), inputs[2].data()};
          table->reduce[static_cast<int>(type)][op](got.data(), pointers, operands, kCount);
          for (std::size_t i = 0; i < kCount; ++i)
            ASSERT_EQ(std::memcmp(&got[i], i % 3 == 0 ? &nan : &number, sizeof(T)), 0)
                << table->name << ", operand " << who << " of " << operands << ", element " << i;
        }
      }
    }
  }
}

TEST(Kernels, MinAndMaxAreNaNWhicheverOperandIs) {
  expect_nan_stays<float>(DataType::f32, std::numeric_limits<float>::quiet_NaN(), 2.0f);
  expect_nan_stays<double>(DataType::f64, std::numeric_limits<double>::quiet_NaN(), 2.0);
  expect_nan_stays<std::uint16_t>(DataType::f16, 0x7e00, 0x4000);
  expect_nan_stays<std::uint16_t>(DataType::bf16, 0x7fc0, 0x4000);
}

TEST(Kernels, AveragesAreDividedBeforeTheyAreRounded) {
  constexpr std::size_t kCount = 77;
  for (const auto* table : tables()) {
    const auto average = [&](DataType type, std::vector<std::uint16_t> values) {
      std::vector<std::vector<std::uint16_t>> inputs;
      std::vector<const void*> pointers;
      for (auto value : values) inputs.emplace_back(kCount, value);
      for (auto& input : inputs) pointers.push_back(input.data());
      std::vector<std::uint16_t> got(kCount);
      table->average[static_cast<int>(type)](got.data(), pointers.data(), pointers.size(), kCount,
                                             values.size());
      EXPECT_EQ(got.front(), got.back());
      return got.front();
    };
    // The sum is not in the type's range, the average is.
    EXPECT_EQ(average(DataType::f16, {0x7bff, 0x7bff}), 0x7bff) << table->name;
    EXPECT_EQ(average(DataType::f16, {0x7bff, 0x7bff, 0x7bff, 0x7bff}), 0x7bff) << table->name;
    EXPECT_EQ(average(DataType::bf16, {0x7f7f, 0x3f80}), 0x7eff) << table->name;
    // Once rounded: 1, 1 and 1 + 2^-10 in f16 give 1 + 2^-10 / 3, which is 1.
    EXPECT_EQ(average(DataType::f16, {0x3c00, 0x3c00, 0x3c01}), 0x3c00) << table->name;
    // The sum 0.56909... as f16 and then a third of it would be 0x3211.
    const std::uint16_t inputs[] = {0x2e61, 0x37c5, 0xa42a};
    const double sum = half_value(inputs[0]) + half_value(inputs[1]) + half_value(inputs[2]);
    EXPECT_EQ(average(DataType::f16, {inputs[0], inputs[1], inputs[2]}),
              nearest_half(static_cast<float>(static_cast<float>(sum) / 3.0f)))
        << table->name;
    const std::int8_t bytes[] = {-7, -8};
    const void* operands[] = {bytes, bytes + 1};
    std::int8_t got = 0;
    table->average[static_cast<int>(DataType::i8)](&got, operands, 2, 1, 2);
    EXPECT_EQ(got, -7) << table->name;
  }
}

TEST(Kernels, MultiplyWrapsIntegersAndRoundsHalfOnce) {
  const auto bits_of = [](auto value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(value));
    return bits;
  };
  for (const auto* table : tables()) {
    const auto multiply = [&](DataType type, void* to, const void* from, std::size_t count,
                              std::uint64_t by) {
      table->multiply[static_cast<int>(type)](to, from, count, by);
    };
    std::int8_t bytes[70];
    for (int i = 0; i < 70; ++i) bytes[i] = static_cast<std::int8_t>(i);
    multiply(DataType::i8, bytes, bytes, 70, bits_of(std::int8_t{-3}));
    for (int i = 0; i < 70; ++i) EXPECT_EQ(bytes[i], static_cast<std::int8_t>(i * -3)) << i;
    std::uint64_t wide = std::uint64_t{1} << 63;
    multiply(DataType::u64, &wide, &wide, 1, 3);
    EXPECT_EQ(wide, std::uint64_t{1} << 63);
    double doubles[3] = {1, 2, 3};
    multiply(DataType::f64, doubles, doubles, 3, bits_of(0.1));
    EXPECT_EQ(doubles[2], 3 * 0.1);
    // 1 + 2^-7 times 1.5 is 1.5 + 2^-7 + 2^-8, a tie that goes to even.
    std::uint16_t bfloats[65];
    for (auto& value : bfloats) value = 0x3f81;
    multiply(DataType::bf16, bfloats, bfloats, 65, bits_of(1.5f));
    EXPECT_EQ(bfloats[64], 0x3fc2);
    std::uint16_t half = 0x3c00;
    multiply(DataType::f16, &half, &half, 1, bits_of(0.25f));
    EXPECT_EQ(half, 0x3400);
  }
}

TEST(Kernels, ScaleRoundsTowardZero) {
  for (const auto* table : tables()) {
    std::int8_t bytes[3] = {-7, 7, -128};
    table->scale[static_cast<int>(DataType::i8)](bytes, 3, 2);
    EXPECT_EQ(bytes[0], -3);
    EXPECT_EQ(bytes[1], 3);
    EXPECT_EQ(bytes[2], -64);
    table->scale[static_cast<int>(DataType::i8)](bytes, 3, 200);
    EXPECT_EQ(bytes[2], 0);
    std::uint64_t wide = std::numeric_limits<std::uint64_t>::max();
    table->scale[static_cast<int>(DataType::u64)](&wide, 1, 2);
    EXPECT_EQ(wide, std::numeric_limits<std::uint64_t>::max() / 2);
  }
}

// The same bytes at an odd address give the same bytes at another.
TEST(Kernels, BuffersNeedNotBeAligned) {
  constexpr std::size_t kCount = 1111;
  std::mt19937 random(5);
  for (const auto* table : tables()) {
    for (int type = 0; type < kDataTypeCount; ++type) {
      const std::size_t bytes = kCount * size_of(static_cast<DataType>(type));
      std::vector<std::uint64_t> aligned[4];
      std::vector<unsigned char> odd[4];
      for (int i = 0; i < 4; ++i) {
        aligned[i].resize(kCount + 1);
        auto* at = reinterpret_cast<unsigned char*>(aligned[i].data());
        // No NaN, whose payload may differ: the highest bits of every element are 0.
        for (std::size_t b = 0; b < bytes; ++b) at[b] = static_cast<unsigned char>(random() % 0x30);
        odd[i].assign(at, at + bytes);
        odd[i].insert(odd[i].begin(), static_cast<std::size_t>(2 * i + 1), 0);
      }
      const auto at_odd = [&](int i) { return odd[i].data() + 2 * i + 1; };
      const auto is_equal = [&](int i) { return std::memcmp(aligned[i].data(), at_odd(i), bytes) == 0; };
      for (int op = 0; op < 4; ++op) {
        for (std::size_t operands : {2, 3}) {
          const void* from[] = {aligned[1].data(), aligned[2].data(), aligned[3].data()};
          const void* from_odd[] = {at_odd(1), at_odd(2), at_odd(3)};
          table->reduce[type][op](aligned[0].data(), from, operands, kCount);
          table->reduce[type][op](at_odd(0), from_odd, operands, kCount);
          EXPECT_TRUE(is_equal(0)) << table->name << " type " << type << " operator " << op;
        }
      }
      const std::uint64_t factor = 0x3030303030303030;
      table->multiply[type](aligned[0].data(), aligned[1].data(), kCount, factor);
      table->multiply[type](at_odd(0), at_odd(1), kCount, factor);
      EXPECT_TRUE(is_equal(0)) << table->name << " type " << type << " multiplied";
      table->scale[type](aligned[2].data(), kCount, 3);
      table->scale[type](at_odd(2), kCount, 3);
      EXPECT_TRUE(is_equal(2)) << table->name << " type " << type << " scaled";
    }
  }
}

}  // namespace
}  // namespace tugline::comm

// SPDX-License-Identifier: Apache-2.0
// Buffers of any element type, filled so that every reduction is exact, and the result they must give.
#pragma once

#include <cstring>
#include <ostream>
#include <vector>

#include "tugline/types.h"

namespace tugline::comm::test {

/// The types that tests go through: all of them; where ThreadSanitizer looks, which sees bytes, one of each
/// size.
inline std::vector<DataType> types_to_try() {
#if defined(__SANITIZE_THREAD__)
  return {DataType::u8, DataType::bf16, DataType::i32, DataType::f64};
#else
  std::vector<DataType> types;
  for (int index = 0; index < kDataTypeCount; ++index) types.push_back(static_cast<DataType>(index));
  return types;
#endif
}

/// Small integers in the element type's own encoding; equality is bitwise.
class Elements {
 public:
  Elements(DataType type, std::size_t count) : type_(type), bytes_(count * size_of(type), std::byte{0x5a}) {}
  /// Element i of rank r in round k is 1 or 2, chosen by a hash: exact in every type, products up to 2^ranks.
  Elements(DataType type, std::size_t count, int rank, int round) : Elements(type, count) {
    for (std::size_t i = 0; i < count; ++i) set(i, value(i, rank, round));
  }

  static int value(std::size_t index, int rank, int round) {
    auto hash = (index + 1) * 2654435761u ^ static_cast<std::size_t>(rank + 1) * 40503u ^
                static_cast<std::size_t>(round + 1) * 9973u;
    hash ^= hash >> 13;
    return 1 + static_cast<int>(hash & 1);
  }

  void* data() { return bytes_.data(); }
  void* at(std::size_t index) { return bytes_.data() + index * size_of(type_); }
  void paste(const Elements& from, std::size_t index) {
    if (!from.bytes_.empty()) std::memcpy(at(index), from.bytes_.data(), from.bytes_.size());
  }
  Elements part(std::size_t index, std::size_t count) const {
    Elements result(type_, count);
    if (count != 0)
      std::memcpy(result.bytes_.data(), bytes_.data() + index * size_of(type_), count * size_of(type_));
    return result;
  }

  void set(std::size_t index, double number) {
    auto put = [&](auto element) { std::memcpy(at(index), &element, sizeof(element)); };
    switch (type_) {
      case DataType::i8:
        put(static_cast<std::int8_t>(number));
        break;
      case DataType::u8:
        put(static_cast<std::uint8_t>(number));
        break;
      case DataType::i32:
        put(static_cast<std::int32_t>(number));
        break;
      case DataType::u32:
        put(static_cast<std::uint32_t>(number));
        break;
      case DataType::i64:
        put(static_cast<std::int64_t>(number));
        break;
      case DataType::u64:
        put(static_cast<std::uint64_t>(number));
        break;
      case DataType::f32:
        put(static_cast<float>(number));
        break;
      case DataType::f64:
        put(number);
        break;
      case DataType::bf16: {
        const auto single = static_cast<float>(number);
        std::uint32_t bits;
        std::memcpy(&bits, &single, 4);
        bits += 0x7fff + (bits >> 16 & 1);
        put(static_cast<std::uint16_t>(bits >> 16));
        break;
      }
      case DataType::f16: {
        // Normal numbers only, which is all that the tests use: round the 10-bit mantissa to nearest even.
        const auto single = static_cast<float>(number);
        std::uint32_t bits;
        std::memcpy(&bits, &single, 4);
        bits += 0xfff + (bits >> 13 & 1);
        put(static_cast<std::uint16_t>((bits >> 16 & 0x8000) |
                                       ((((bits >> 23 & 0xff) - 112) << 10) | (bits >> 13 & 0x3ff))));
        break;
      }
    }
  }

  friend bool operator==(const Elements&, const Elements&) = default;
  friend void PrintTo(const Elements& elements, std::ostream* out) {
    *out << name_of(elements.type_) << "[" << elements.bytes_.size() / size_of(elements.type_) << "]";
  }

 private:
  DataType type_;
  std::vector<std::byte> bytes_;
};

/// What reducing all ranks' Elements(type, count, r, round) gives.
inline Elements reduced(DataType type, std::size_t count, ReduceOp op, int ranks, int round) {
  Elements result(type, count);
  const bool integral = type < DataType::f16;
  for (std::size_t i = 0; i < count; ++i) {
    double total = Elements::value(i, 0, round);
    for (int rank = 1; rank < ranks; ++rank) {
      const double next = Elements::value(i, rank, round);
      switch (op) {
        case ReduceOp::sum:
        case ReduceOp::avg:
          total += next;
          break;
        case ReduceOp::prod:
          total *= next;
          break;
        case ReduceOp::min:
          total = next < total ? next : total;
          break;
        case ReduceOp::max:
          total = total < next ? next : total;
          break;
      }
    }
    if (op == ReduceOp::avg) {
      // In the type's own arithmetic: f16 and bf16 divide in f32.
      if (integral)
        total = static_cast<double>(static_cast<long>(total) / ranks);
      else if (type == DataType::f64)
        total /= ranks;
      else
        total = static_cast<float>(total) / static_cast<float>(ranks);
    }
    result.set(i, total);
  }
  return result;
}

}  // namespace tugline::comm::test

// SPDX-License-Identifier: Apache-2.0
// Element types and reduction operators, by the names that the field uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tugline {

/// Element type of a buffer. f16 is IEEE 754 binary16, bf16 is bfloat16; both accumulate in f32.
enum class DataType : std::uint8_t { i8, u8, i32, u32, i64, u64, f16, bf16, f32, f64 };
inline constexpr int kDataTypeCount = 10;

/// Reduction operator. avg is the sum divided by the number of ranks (integers: rounded toward zero).
enum class ReduceOp : std::uint8_t { sum, prod, min, max, avg };
inline constexpr int kReduceOpCount = 5;

/// Size of one element in bytes.
constexpr std::size_t size_of(DataType type) noexcept {
  switch (type) {
    case DataType::i8:
    case DataType::u8:
      return 1;
    case DataType::f16:
    case DataType::bf16:
      return 2;
    case DataType::i32:
    case DataType::u32:
    case DataType::f32:
      return 4;
    case DataType::i64:
    case DataType::u64:
    case DataType::f64:
      return 8;
  }
  return 0;
}

constexpr std::string_view name_of(DataType type) noexcept {
  constexpr std::string_view kNames[] = {"i8", "u8", "i32", "u32", "i64", "u64", "f16", "bf16", "f32", "f64"};
  return static_cast<std::size_t>(type) < kDataTypeCount ? kNames[static_cast<std::size_t>(type)] : "?";
}

constexpr std::string_view name_of(ReduceOp op) noexcept {
  constexpr std::string_view kNames[] = {"sum", "prod", "min", "max", "avg"};
  return static_cast<std::size_t>(op) < kReduceOpCount ? kNames[static_cast<std::size_t>(op)] : "?";
}

/// Storage of an f16 or bf16 element where the compiler has no such type: the bits, no arithmetic.
struct Float16 {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

/// Maps a C++ type to its DataType; only the types listed there may be elements.
template <class T>
struct DataTypeOf;
template <>
struct DataTypeOf<std::int8_t> {
  static constexpr DataType value = DataType::i8;
};
template <>
struct DataTypeOf<std::uint8_t> {
  static constexpr DataType value = DataType::u8;
};
template <>
struct DataTypeOf<std::int32_t> {
  static constexpr DataType value = DataType::i32;
};
template <>
struct DataTypeOf<std::uint32_t> {
  static constexpr DataType value = DataType::u32;
};
template <>
struct DataTypeOf<std::int64_t> {
  static constexpr DataType value = DataType::i64;
};
template <>
struct DataTypeOf<std::uint64_t> {
  static constexpr DataType value = DataType::u64;
};
template <>
struct DataTypeOf<Float16> {
  static constexpr DataType value = DataType::f16;
};
template <>
struct DataTypeOf<BFloat16> {
  static constexpr DataType value = DataType::bf16;
};
template <>
struct DataTypeOf<float> {
  static constexpr DataType value = DataType::f32;
};
template <>
struct DataTypeOf<double> {
  static constexpr DataType value = DataType::f64;
};

template <class T>
concept Element = requires {
  DataTypeOf<T>::value;
};

/// Contiguous, writable elements: Buffer, std::span, std::vector, array.
template <class Range>
concept ElementRange = requires(Range& range) {
  requires Element<std::remove_pointer_t<decltype(std::data(range))>>;
  std::size(range);
};

/// The DataType of a range's elements.
template <ElementRange Range>
inline constexpr DataType kDataTypeOf =
    DataTypeOf<std::remove_pointer_t<decltype(std::data(std::declval<Range&>()))>>::value;

}  // namespace tugline

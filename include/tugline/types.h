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

/// Reduction operator. avg is the sum divided by the number of ranks (integers: rounded toward zero). min and
/// max of floats are NaN if any operand is.
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

/// How contributions are combined: by an operator, or as the sum of contributions that each rank first
/// multiplies by a factor of its own (what NCCL makes by ncclRedOpCreatePreMulSum). A value; converts from
/// ReduceOp.
class Reduction {
 public:
  constexpr Reduction(ReduceOp op) noexcept : op_(op) {}
  /// This rank's contribution counts `factor` times; ranks may name different factors. For element types of
  /// integers the factor is an integer that the type can hold, and products wrap as sums do; f16, bf16 and
  /// f32 multiply in f32, and the product is rounded to the type before the sum.
  template <class Factor>
  requires std::is_arithmetic_v<Factor>
  static constexpr Reduction pre_mul_sum(Factor factor) noexcept {
    Reduction reduction(ReduceOp::sum);
    if constexpr (std::is_integral_v<Factor>) {
      reduction.kind_ = factor < 0 ? FactorKind::negative : FactorKind::natural;
      reduction.integer_ = static_cast<std::uint64_t>(factor);
    } else {
      reduction.kind_ = FactorKind::real;
    }
    reduction.real_ = static_cast<double>(factor);
    return reduction;
  }

  constexpr ReduceOp op() const noexcept { return op_; }
  constexpr bool is_pre_multiplied() const noexcept { return kind_ != FactorKind::none; }
  constexpr double factor() const noexcept { return real_; }
  /// Of an integer factor, its 64 bits in two's complement.
  constexpr bool is_integer() const noexcept { return kind_ != FactorKind::real; }
  constexpr bool is_negative() const noexcept { return kind_ == FactorKind::negative; }
  constexpr std::uint64_t integer_factor() const noexcept { return integer_; }

 private:
  enum class FactorKind : std::uint8_t { none, natural, negative, real };
  ReduceOp op_;
  FactorKind kind_ = FactorKind::none;
  std::uint64_t integer_ = 0;  ///< two's complement
  double real_ = 1;
};

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

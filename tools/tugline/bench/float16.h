// SPDX-License-Identifier: Apache-2.0
// The 16-bit floating-point formats, for the reference that results are compared with. Independent of the
// library's own conversions on purpose.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace tugline::cli {

/// IEEE 754 binary16, rounded to nearest, ties to even; for finite values.
inline std::uint16_t to_f16_bits(float value) noexcept {
  std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  float size = std::fabs(value);
  if (size == 0) return sign;
  int exponent = 0;
  std::frexp(size, &exponent);  // size = m * 2^exponent, 0.5 <= m < 1
  exponent = std::max(exponent - 1, -14);
  // Significand as a whole number of units of the last place; nearbyint rounds ties to even.
  auto units = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  // units has the hidden bit 1024 where the number is normal; adding carries into the exponent by itself.
  std::uint32_t bits = static_cast<std::uint32_t>(exponent + 14) * 1024 + units;
  return static_cast<std::uint16_t>(sign | (bits >= 0x7C00 ? 0x7C00 : bits));
}

/// bfloat16, rounded to nearest, ties to even; for finite values.
inline std::uint16_t to_bf16_bits(float value) noexcept {
  auto bits = std::bit_cast<std::uint32_t>(value);
  bits += 0x7FFF + ((bits >> 16) & 1);
  return static_cast<std::uint16_t>(bits >> 16);
}

}  // namespace tugline::cli

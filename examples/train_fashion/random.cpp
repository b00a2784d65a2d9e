// SPDX-License-Identifier: Apache-2.0
#include "random.h"

#include <cmath>
#include <numbers>

namespace train_fashion {
namespace {

std::uint64_t mix(std::uint64_t value) noexcept {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

}  // namespace

Random::Random(std::uint64_t seed, Purpose purpose, std::uint64_t index) noexcept
    : state_(mix(mix(mix(seed) + static_cast<std::uint64_t>(purpose)) + index)) {}

std::uint64_t Random::bits() noexcept {
  return mix(state_ += 0x9e3779b97f4a7c15ULL);
}

std::uint32_t Random::below(std::uint32_t bound) noexcept {
  return static_cast<std::uint32_t>(((bits() >> 32) * bound) >> 32);
}

double Random::normal() noexcept {
  // Box-Muller; the first draw is in (0, 1] so that its logarithm is finite.
  const double radius = (static_cast<double>(bits() >> 11) + 1) * 0x1p-53;
  const double angle = static_cast<double>(bits() >> 11) * 0x1p-53;
  return std::sqrt(-2 * std::log(radius)) * std::cos(2 * std::numbers::pi * angle);
}

}  // namespace train_fashion

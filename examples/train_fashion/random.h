// SPDX-License-Identifier: Apache-2.0
// A small generator whose sequence is the same with every standard library: ranks and replays depend on it.
#pragma once

#include <cstdint>

namespace train_fashion {

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
class Random {
 public:
  /// Streams of different purposes do not depend on how much of each other was drawn.
  enum class Purpose : std::uint64_t { weights = 1, order = 2 };

  Random(std::uint64_t seed, Purpose purpose, std::uint64_t index = 0) noexcept;
  std::uint64_t bits() noexcept;
  /// Uniform in 0 .. bound-1.
  std::uint32_t below(std::uint32_t bound) noexcept;
  /// Mean 0, deviation 1.
  double normal() noexcept;

 private:
  std::uint64_t state_;
};

}  // namespace train_fashion

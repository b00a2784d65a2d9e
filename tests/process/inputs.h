// SPDX-License-Identifier: Apache-2.0
// Inputs that every rank can compute for every other one, so that results are checked without asking anybody.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tugline::process {

/// SplitMix64: the same sequence from the same seed on every rank.
class Sequence {
 public:
  explicit Sequence(std::uint64_t seed) noexcept : state_(seed) {}
  std::uint64_t next() noexcept {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  std::uint64_t below(std::uint64_t limit) noexcept { return next() % limit; }

 private:
  std::uint64_t state_;
};

/// Inputs repeat with this period, so that a table of expected values is small.
inline constexpr std::size_t kPeriod = 16;

/// Element `index` of original rank `rank` in an operation: a small integer, so that sums are exact in f32.
constexpr std::uint32_t input(std::uint32_t rank, std::uint64_t salt, std::size_t index) noexcept {
  return static_cast<std::uint32_t>((index * 5 + rank * 3 + salt) % kPeriod);
}

template <class T>
void fill(std::span<T> values, std::uint32_t rank, std::uint64_t salt) {
  std::array<T, kPeriod> table;
  for (std::size_t i = 0; i < kPeriod; ++i) table[i] = static_cast<T>(input(rank, salt, i));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = table[i % kPeriod];
}

/// True when values[i] is the sum over `ranks` of their input first + i.
template <class T>
bool is_sum(std::span<const T> values, const std::vector<std::uint32_t>& ranks, std::uint64_t salt,
            std::size_t first) {
  std::array<T, kPeriod> table;
  for (std::size_t i = 0; i < kPeriod; ++i) {
    std::uint32_t sum = 0;
    for (auto rank : ranks) sum += input(rank, salt, first + i);
    table[i] = static_cast<T>(sum);
  }
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) wrong += values[i] != table[i % kPeriod];
  return wrong == 0;
}

/// FNV-1a over words, continued from `hash`.
inline std::uint64_t hash_of(std::span<const std::uint32_t> words, std::uint64_t hash) noexcept {
  for (const auto word : words) hash = (hash ^ word) * 0x100000001b3u;
  return hash;
}
inline constexpr std::uint64_t kHashStart = 0xcbf29ce484222325u;

}  // namespace tugline::process

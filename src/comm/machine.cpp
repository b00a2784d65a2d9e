// SPDX-License-Identifier: Apache-2.0
#include "comm/machine.h"

#include <algorithm>
#include <bit>

#include "core/plan/groups.h"

namespace tugline::comm {
namespace {

constexpr unsigned kNodeShift = 32;
constexpr std::uint64_t kCacheMask = (std::uint64_t{1} << kNodeShift) - 1;

/// Groups by one half of the words, counted from 1; none if it is 0 anywhere or the same everywhere.
template <class Half>
std::vector<std::int32_t> groups_by(std::span<const std::uint64_t> localities, Half half) {
  std::vector<std::int64_t> values;
  for (const auto word : localities) values.push_back(static_cast<std::int64_t>(half(word)));
  if (std::find(values.begin(), values.end(), 0) != values.end()) return {};
  auto groups = core::numbered_in_order(values);
  if (std::all_of(groups.begin(), groups.end(), [](auto group) { return group == 0; })) return {};
  return groups;
}

}  // namespace

std::uint64_t packed(const topology::Locality& locality) noexcept {
  const auto counted = [](const std::optional<int>& number) {
    return number && *number >= 0 ? static_cast<std::uint64_t>(*number) + 1 : 0;
  };
  return counted(locality.numa_node) << kNodeShift | counted(locality.last_cache);
}

std::vector<std::int32_t> groups_of(std::span<const std::uint64_t> localities) {
  auto groups = groups_by(localities, [](std::uint64_t word) { return word >> kNodeShift; });
  if (groups.empty()) groups = groups_by(localities, [](std::uint64_t word) { return word & kCacheMask; });
  return groups;
}

int count_cores(const Board& board, std::span<const std::uint32_t> originals) noexcept {
  int cores = 0;
  for (std::size_t word = 0; word < CoreSet::kWords; ++word) {
    std::uint64_t all = 0;
    for (const auto original : originals)
      all |= board.cores[original].words[word].load(std::memory_order_relaxed);
    cores += std::popcount(all);
  }
  return cores;
}

core::CostModel machine_of(const Board& board, std::span<const std::uint32_t> originals) {
  std::vector<std::uint64_t> localities;
  for (const auto original : originals)
    localities.push_back(board.localities[original].load(std::memory_order_relaxed));
  core::CostModel machine;
  machine.cores = std::max(count_cores(board, originals), 1);
  machine.groups = groups_of(localities);
  return machine;
}

}  // namespace tugline::comm

// SPDX-License-Identifier: Apache-2.0
#include "core/plan/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace tugline::core {

std::string problem_of_groups(const std::vector<std::int32_t>& groups, std::int32_t ranks) {
  if (groups.size() != static_cast<std::size_t>(ranks))
    return fmt::format("groups has {} ranks, must have {}", groups.size(), ranks);
  std::int32_t next = 0;
  for (std::size_t rank = 0; rank < groups.size(); ++rank) {
    if (groups[rank] < 0 || groups[rank] > next)
      return fmt::format("groups[{}] is {}, must be 0 to {}: groups are numbered by their lowest ranks", rank,
                         groups[rank], next);
    if (groups[rank] == next) ++next;
  }
  return {};
}

std::vector<std::int32_t> numbered_in_order(const std::vector<std::int64_t>& groups) {
  std::map<std::int64_t, std::int32_t> numbers;
  std::vector<std::int32_t> result;
  result.reserve(groups.size());
  for (const auto group : groups)
    result.push_back(numbers.try_emplace(group, static_cast<std::int32_t>(numbers.size())).first->second);
  return result;
}

Groups::Groups(const std::vector<std::int32_t>& groups) : of_(groups) {
  for (std::size_t rank = 0; rank < of_.size(); ++rank) {
    const auto group = static_cast<std::size_t>(of_[rank]);
    if (group == members_.size()) members_.emplace_back();
    members_[group].push_back(static_cast<std::int32_t>(rank));
  }
  smallest_ = static_cast<std::int32_t>(of_.size());
  for (std::int32_t group = 0; group < count(); ++group) {
    largest_ = std::max(largest_, size(group));
    smallest_ = std::min(smallest_, size(group));
  }
}

std::int32_t Groups::below(std::int32_t group, std::int32_t rank) const noexcept {
  const auto& list = members(group);
  return static_cast<std::int32_t>(std::lower_bound(list.begin(), list.end(), rank) - list.begin());
}

}  // namespace tugline::core

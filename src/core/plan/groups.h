// SPDX-License-Identifier: Apache-2.0
// Ranks that are near to each other: PlanRequest::groups, and who of a group does what for a rank outside it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tugline::core {

/// What is wrong with a list of each rank's group; empty when nothing is. Groups are numbered in the order of
/// their lowest ranks, so that equal groups are equal lists.
std::string problem_of_groups(const std::vector<std::int32_t>& groups, std::int32_t ranks);
/// The same groups, whatever their numbers, in that order.
std::vector<std::int32_t> numbered_in_order(const std::vector<std::int64_t>& groups);

class Groups {
 public:
  /// `groups` as problem_of_groups accepts them.
  explicit Groups(const std::vector<std::int32_t>& groups);

  std::int32_t count() const noexcept { return static_cast<std::int32_t>(members_.size()); }
  std::int32_t of(std::int32_t rank) const noexcept { return of_[static_cast<std::size_t>(rank)]; }
  /// Ranks of a group, lowest first.
  const std::vector<std::int32_t>& members(std::int32_t group) const noexcept {
    return members_[static_cast<std::size_t>(group)];
  }
  std::int32_t size(std::int32_t group) const noexcept {
    return static_cast<std::int32_t>(members(group).size());
  }
  /// Of `rank` among the members of its group.
  std::int32_t position(std::int32_t rank) const noexcept { return below(of(rank), rank); }
  std::int32_t largest() const noexcept { return largest_; }
  std::int32_t smallest() const noexcept { return smallest_; }
  /// True when there are several groups, one of several ranks at least.
  bool nest() const noexcept { return count() > 1 && largest_ > 1; }

  /// The member of `group` that serves `rank`, which is outside it; a member serves serve_count() ranks at
  /// most, each at an index of its own.
  std::int32_t server(std::int32_t group, std::int32_t rank) const noexcept {
    return members(group)[static_cast<std::size_t>(outsider(group, rank) % size(group))];
  }
  std::int32_t served_index(std::int32_t group, std::int32_t rank) const noexcept {
    return outsider(group, rank) / size(group);
  }
  std::int32_t serve_count(std::int32_t group) const noexcept {
    const auto outside = static_cast<std::int32_t>(of_.size()) - size(group);
    return (outside + size(group) - 1) / size(group);
  }

 private:
  std::int32_t below(std::int32_t group, std::int32_t rank) const noexcept;
  std::int32_t outsider(std::int32_t group, std::int32_t rank) const noexcept {
    return rank - below(group, rank);
  }

  std::vector<std::int32_t> of_;
  std::vector<std::vector<std::int32_t>> members_;
  std::int32_t largest_ = 0;
  std::int32_t smallest_ = 0;
};

}  // namespace tugline::core

// SPDX-License-Identifier: Apache-2.0
#include "core/plan/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

namespace tugline::core {

namespace {

constexpr int kPrintedDepth = 40;
constexpr std::size_t kPrintedLength = 240;

std::uint64_t add_saturating(std::uint64_t a, std::uint64_t b) noexcept {
  const std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();
  return a > limit - b ? limit : a + b;
}

}  // namespace

ExpressionPool::ExpressionPool(std::int32_t ranks) : ranks_(ranks) {
  nodes_.emplace_back();
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    nodes_.push_back({Kind::input, static_cast<Expression>(rank), kUndefined, 0, 1});
  }
}

std::size_t ExpressionPool::Hash::operator()(const Node& node) const noexcept {
  std::uint64_t hash = static_cast<std::uint64_t>(node.kind);
  for (std::uint64_t part :
       {std::uint64_t{node.left}, std::uint64_t{node.right}, static_cast<std::uint64_t>(node.shift)}) {
    hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

Expression ExpressionPool::intern(const Node& node) {
  const auto [found, is_new] = known_.try_emplace(node, static_cast<Expression>(nodes_.size()));
  if (is_new) nodes_.push_back(node);
  return found->second;
}

Expression ExpressionPool::reduce(Expression left, Expression right, std::int64_t shift) {
  return intern({Kind::reduced, left, right, shift, add_saturating(at(left).inputs, at(right).inputs)});
}

Expression ExpressionPool::scale(Expression operand) {
  return intern({Kind::scaled, operand, kUndefined, 0, at(operand).inputs});
}

Expression ExpressionPool::total_from(std::int32_t first, bool average) {
  Expression total = input_of(first);
  for (std::int32_t step = 1; step < ranks_; ++step) {
    total = reduce(total, input_of((first + step) % ranks_), 0);
  }
  return average ? scale(total) : total;
}

Expression ExpressionPool::tree_node(std::int32_t root, std::int32_t relative) {
  Expression total = input_of((root + relative) % ranks_);
  for (std::int32_t bit = 1; (relative & bit) == 0 && relative + bit < ranks_; bit *= 2) {
    total = reduce(total, tree_node(root, relative + bit), 0);
  }
  return total;
}

Expression ExpressionPool::tree_total(std::int32_t root, bool average) {
  const Expression total = tree_node(root, 0);
  return average ? scale(total) : total;
}

Expression ExpressionPool::recursive_part(std::int32_t first, std::int32_t units) {
  if (units > 1) {
    const Expression lower = recursive_part(first, units / 2);
    return reduce(lower, recursive_part(first + units / 2, units / 2), 0);
  }
  const std::int32_t pairs =
      ranks_ - static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(ranks_)));
  if (first >= pairs) return input_of(first + pairs);
  return reduce(input_of(first * 2), input_of(first * 2 + 1), 0);
}

Expression ExpressionPool::recursive_total(bool average) {
  const Expression total =
      recursive_part(0, static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(ranks_))));
  return average ? scale(total) : total;
}

Expression ExpressionPool::group_total(const std::vector<std::int32_t>& groups, bool average) {
  std::vector<Expression> totals;  // groups come in the order of their lowest ranks
  for (std::int32_t rank = 0; rank < ranks_; ++rank) {
    const auto group = static_cast<std::size_t>(groups[static_cast<std::size_t>(rank)]);
    if (group == totals.size()) {
      totals.push_back(input_of(rank));
    } else {
      totals[group] = reduce(totals[group], input_of(rank), 0);
    }
  }
  Expression total = totals[0];
  for (std::size_t group = 1; group < totals.size(); ++group) total = reduce(total, totals[group], 0);
  return average ? scale(total) : total;
}

std::string ExpressionPool::problem_as_total(Expression expression, bool average) const {
  if (average != is_scaled(expression)) {
    return average ? "it is not divided by the number of ranks" : "it is divided by the number of ranks";
  }
  std::vector<int> seen(static_cast<std::size_t>(ranks_), 0);
  std::vector<Expression> open = {average ? at(expression).left : expression};
  // More leaves than ranks means some rank is there twice; the walk stops when it has met it.
  while (!open.empty()) {
    const Node& node = at(open.back());
    open.pop_back();
    switch (node.kind) {
      case Kind::undefined:
        return "part of it was never written";
      case Kind::scaled:
        return "a part of it is divided before all contributions are in";
      case Kind::reduced:
        if (node.shift != 0) return fmt::format("it combines elements that lie {} bytes apart", node.shift);
        open.push_back(node.right);
        open.push_back(node.left);
        break;
      case Kind::input:
        if (++seen[node.left] > 1) return fmt::format("rank {} contributes more than once", node.left);
        break;
    }
  }
  const auto missing = std::find(seen.begin(), seen.end(), 0);
  if (missing != seen.end()) {
    return fmt::format("rank {} does not contribute", std::distance(seen.begin(), missing));
  }
  return {};
}

std::string ExpressionPool::print(Expression expression) const {
  std::string text;
  print(expression, 0, text);
  if (text.size() > kPrintedLength) {
    text.resize(kPrintedLength);
    text += "...";
  }
  return text;
}

void ExpressionPool::print(Expression expression, int depth, std::string& text) const {
  const Node& node = at(expression);
  if (text.size() > kPrintedLength) return;
  if (depth > kPrintedDepth) {
    text += "...";
    return;
  }
  switch (node.kind) {
    case Kind::undefined:
      text += "nothing";
      break;
    case Kind::input:
      text += fmt::format("r{}", node.left);
      break;
    case Kind::scaled:
      print(node.left, depth + 1, text);
      text += fmt::format("/{}", ranks_);
      break;
    case Kind::reduced:
      text += '(';
      print(node.left, depth + 1, text);
      text += " op ";
      print(node.right, depth + 1, text);
      if (node.shift != 0) text += fmt::format("[{:+}]", node.shift);
      text += ')';
      break;
  }
}

}  // namespace tugline::core

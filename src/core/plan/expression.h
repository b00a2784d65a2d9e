// SPDX-License-Identifier: Apache-2.0
// What a byte of memory holds, as the checker sees it: an expression over the inputs of the ranks. Equal
// expressions have equal numbers, so "the same order of contributions" is one comparison.
//
// An expression stands for a whole buffer: at coordinate c it is the element at byte c of an input, combined
// with others. A range of memory holds an expression from some coordinate on; a copy to another place keeps
// the coordinate, so a plan that shifts data by some bytes shows.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace tugline::core {

using Expression = std::uint32_t;
/// Memory that nobody has written.
inline constexpr Expression kUndefined = 0;

class ExpressionPool {
 public:
  explicit ExpressionPool(std::int32_t ranks);

  /// Input of a rank; its coordinate is the byte offset there.
  Expression input_of(std::int32_t rank) const noexcept { return static_cast<Expression>(rank) + 1; }
  /// left op right, where the right operand's coordinate is the left one's plus `shift`.
  Expression reduce(Expression left, Expression right, std::int64_t shift);
  Expression scale(Expression operand);
  /// ((r_first op r_first+1) op ...) around the ring of ranks, divided by ranks if `average`.
  Expression total_from(std::int32_t first, bool average);

  /// A binomial tree from `root`: with relative rank v = (rank - root) mod ranks, node v combines its own
  /// input with the totals of its children v + 1, v + 2, v + 4 ... (below v's lowest set bit), in this order.
  Expression tree_total(std::int32_t root, bool average);

  /// Halves of halves in rank order, over units of one rank; with p the largest power of two that is not
  /// above the ranks, each of the first (ranks - p) units is a pair of ranks.
  Expression recursive_total(bool average);

  /// Each group's inputs in rank order, then the groups' totals in the order of the groups; `groups` as
  /// Plan::groups.
  Expression group_total(const std::vector<std::int32_t>& groups, bool average);

  bool is_scaled(Expression expression) const noexcept { return at(expression).kind == Kind::scaled; }
  /// Empty when the expression combines the input of every rank exactly once, all at the same coordinate,
  /// and is scaled once as a whole if `average`, else not at all. Otherwise what is wrong.
  std::string problem_as_total(Expression expression, bool average) const;
  /// As text, shortened when long: "((r0 op r1) op r2)/3".
  std::string print(Expression expression) const;

 private:
  enum class Kind : std::uint8_t { undefined, input, reduced, scaled };
  struct Node {
    Kind kind = Kind::undefined;
    Expression left = kUndefined;  ///< input: the rank
    Expression right = kUndefined;
    std::int64_t shift = 0;
    std::uint64_t inputs = 0;  ///< leaves, saturating

    friend bool operator==(const Node&, const Node&) = default;
  };
  struct Hash {
    std::size_t operator()(const Node& node) const noexcept;
  };
  const Node& at(Expression expression) const noexcept { return nodes_[expression]; }
  Expression intern(const Node& node);
  Expression recursive_part(std::int32_t first, std::int32_t units);
  Expression tree_node(std::int32_t root, std::int32_t relative);
  void print(Expression expression, int depth, std::string& text) const;

  std::int32_t ranks_;
  std::vector<Node> nodes_;
  std::unordered_map<Node, Expression, Hash> known_;
};

}  // namespace tugline::core

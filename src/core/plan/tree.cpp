// SPDX-License-Identifier: Apache-2.0
// Tree: a binomial tree with the root on top. A trip per level and not one per rank, so it pays where many
// ranks with cores of their own move little: no rank reads more than log2(ranks) others.
//
// With relative rank v = (rank - root) mod ranks, the children of v are v + 1, v + 2, v + 4 ... below v's
// lowest set bit. What a rank hands on lies in its own scratch, a one-way pipeline with credits to each
// reader.
#include <vector>

#include "core/plan/builder_parts.h"

namespace tugline::core {

namespace {

constexpr std::uint8_t kWritten = 0;
constexpr std::uint8_t kCredit = 1;

class Tree {
 public:
  Tree(ProgramWriter& program, const PlanRequest& request, const Pipeline& pipeline)
      : program_(program),
        request_(request),
        pipeline_(pipeline),
        credits_{pipeline.slots, pipeline.chunks()},
        is_root_(program.rank() == request.root) {
    const std::int32_t n = request.ranks;
    const std::int32_t relative = (program.rank() - request.root + n) % n;
    std::int32_t bit = 1;
    for (; (relative & bit) == 0 && relative + bit < n; bit *= 2) {
      children_.push_back((relative + bit + request.root) % n);
    }
    parent_ = (relative - (relative & -relative) + request.root) % n;
  }

  void write() {
    for (std::uint64_t k = 0; k < pipeline_.chunks(); ++k) {
      if (request_.collective == Collective::reduce) {
        combine(k);
      } else {
        hand_down(k);
      }
    }
  }

 private:
  void combine(std::uint64_t k) {
    const std::uint64_t bytes = pipeline_.bytes(k);
    const Place own = program_.input(pipeline_.offset(k));
    Place total = program_.output(pipeline_.offset(k));
    if (!is_root_) {
      if (auto credit = credits_.needed(k)) program_.wait(parent_, kCredit, credit);
      total = program_.scratch(pipeline_.slot(k));
      if (children_.empty()) program_.copy(total, own, bytes);
    }
    Place left = own;
    for (std::int32_t child : children_) {
      program_.wait(child, kWritten, k + 1);
      program_.reduce(total, left, ProgramWriter::scratch_of(child, pipeline_.slot(k)), bytes);
      if (auto credit = credits_.given(k)) program_.signal(child, kCredit, credit);
      left = total;
    }
    if (!is_root_) {
      program_.signal(parent_, kWritten, k + 1);
    } else if (request_.average) {
      program_.scale(total, bytes);
    }
  }

  void hand_down(std::uint64_t k) {
    const std::uint64_t bytes = pipeline_.bytes(k);
    const Place output = program_.output(pipeline_.offset(k));
    const Place own = program_.scratch(pipeline_.slot(k));
    Place source = program_.input(pipeline_.offset(k));
    if (!is_root_) {
      program_.wait(parent_, kWritten, k + 1);
      source = ProgramWriter::scratch_of(parent_, pipeline_.slot(k));
    }
    if (!children_.empty()) {
      if (auto credit = credits_.needed(k)) {
        for (std::int32_t child : children_) program_.wait(child, kCredit, credit);
      }
      program_.copy(own, source, bytes);
      // The child with the most ranks below it first.
      for (auto child = children_.rbegin(); child != children_.rend(); ++child) {
        program_.signal(*child, kWritten, k + 1);
      }
    }
    if (is_root_) {
      if (!request_.in_place) program_.copy(output, source, bytes);
      return;
    }
    program_.copy(output, children_.empty() ? source : own, bytes);
    if (auto credit = credits_.given(k)) program_.signal(parent_, kCredit, credit);
  }

  ProgramWriter& program_;
  const PlanRequest& request_;
  const Pipeline& pipeline_;
  const CreditRule credits_;
  const bool is_root_;
  std::int32_t parent_ = 0;
  std::vector<std::int32_t> children_;  ///< the one with the fewest ranks below it first
};

}  // namespace

std::optional<Pipeline> tree_pipeline(const PlanRequest& request) noexcept {
  if (!needs_exchange(request)) return Pipeline{.slots = 0};
  return one_way_pipeline(request, request.bytes);
}

Plan build_tree(const PlanRequest& request) {
  validate(request);
  if (!can_build("tree", request)) throw_cannot_build("tree", request);
  const Pipeline pipeline = *tree_pipeline(request);
  Plan plan = empty_plan("tree", request);
  plan.scratch_bytes = pipeline.scratch_bytes();
  write_programs(plan, request, [&](ProgramWriter& program) { Tree(program, request, pipeline).write(); });
  return plan;
}

}  // namespace tugline::core

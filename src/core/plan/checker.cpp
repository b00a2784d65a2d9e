// SPDX-License-Identifier: Apache-2.0
#include "core/plan/checker.h"

#include <fmt/format.h>

#include "core/plan/symbolic_run.h"

namespace tugline::core {

namespace {

/// Compares what the outputs hold after a run with what the collective promises.
class OutcomeCheck {
 public:
  OutcomeCheck(const Plan& plan, SymbolicRun& run) : plan_(plan), run_(run) {}

  std::string problem() {
    if (plan_.collective == Collective::barrier) return barrier_problem();
    if (plan_.bytes == 0) return {};
    if (plan_.order == ReductionOrder::other) return free_order_problem();
    for (std::int32_t rank = 0; rank < plan_.ranks; ++rank) {
      const std::vector<Piece> wanted = wanted_output(rank);
      if (wanted.empty()) continue;
      if (auto problem = difference(rank, run_.output_of(rank), wanted); !problem.empty()) return problem;
    }
    return {};
  }

 private:
  std::string barrier_problem() const {
    for (std::int32_t rank = 0; rank < plan_.ranks; ++rank) {
      for (std::int32_t peer = 0; peer < plan_.ranks; ++peer) {
        if (peer == rank || run_.ended_after_start(rank, peer)) continue;
        return fmt::format("rank {} may end before rank {} has come; it must wait for a signal of that rank",
                           rank, peer);
      }
    }
    return {};
  }

  /// Pieces of the output of `rank`, in order; empty when it has none.
  std::vector<Piece> wanted_output(std::int32_t rank) {
    ExpressionPool& pool = run_.expressions();
    const std::uint64_t own_block = static_cast<std::uint64_t>(rank) * plan_.bytes;
    std::vector<Piece> wanted;
    switch (plan_.collective) {
      case Collective::barrier:
        break;
      case Collective::all_reduce:
        for (std::int32_t block = 0; block < plan_.ranks; ++block) {
          const ByteRange range = block_of(plan_.bytes, plan_.element_bytes, plan_.ranks, block);
          append(wanted, {range.bytes(), total_of_block(block), range.begin});
        }
        break;
      case Collective::reduce_scatter:
        append(wanted, {plan_.bytes, total_of_block(rank), own_block});
        break;
      case Collective::all_gather:
        for (std::int32_t peer = 0; peer < plan_.ranks; ++peer) {
          append(wanted, {plan_.bytes, pool.input_of(peer), 0});
        }
        break;
      case Collective::all_gather_v:
        for (std::int32_t peer = 0; peer < plan_.ranks; ++peer) {
          append(wanted, {plan_.block_bytes(peer, peer), pool.input_of(peer), 0});
        }
        break;
      case Collective::reduce_scatter_v:
        append(wanted, {plan_.block_bytes(rank, rank), total_of_block(rank), plan_.input_begin(rank, rank)});
        break;
      case Collective::all_to_all_v:
        for (std::int32_t peer = 0; peer < plan_.ranks; ++peer) {
          append(wanted, {plan_.block_bytes(peer, rank), pool.input_of(peer), plan_.input_begin(peer, rank)});
        }
        break;
      case Collective::all_to_all:
        for (std::int32_t peer = 0; peer < plan_.ranks; ++peer) {
          append(wanted, {plan_.bytes, pool.input_of(peer), own_block});
        }
        break;
      case Collective::reduce:
        if (rank != plan_.root) break;
        for (std::int32_t block = 0; block < plan_.ranks; ++block) {
          const ByteRange range = block_of(plan_.bytes, plan_.element_bytes, plan_.ranks, block);
          append(wanted, {range.bytes(), total_of_block(block), range.begin});
        }
        break;
      case Collective::gather:
        for (std::int32_t peer = 0; rank == plan_.root && peer < plan_.ranks; ++peer) {
          append(wanted, {plan_.bytes, pool.input_of(peer), 0});
        }
        break;
      case Collective::scatter:
        append(wanted, {plan_.bytes, pool.input_of(plan_.root), own_block});
        break;
      case Collective::broadcast:
        append(wanted, {plan_.bytes, pool.input_of(plan_.root), 0});
        break;
      case Collective::send_recv:
        if (rank == 1) append(wanted, {plan_.bytes, pool.input_of(0), 0});
        break;
    }
    return wanted;
  }

  Expression total_of_block(std::int32_t block) {
    if (plan_.order == ReductionOrder::tree_order) {
      return run_.expressions().tree_total(plan_.root, plan_.average);
    }
    if (plan_.order == ReductionOrder::recursive_order) {
      return run_.expressions().recursive_total(plan_.average);
    }
    if (plan_.order == ReductionOrder::group_order) {
      return run_.expressions().group_total(plan_.groups, plan_.average);
    }
    const std::int32_t first = plan_.order == ReductionOrder::ring_order ? (block + 1) % plan_.ranks : 0;
    return run_.expressions().total_from(first, plan_.average);
  }

  std::string difference(std::int32_t rank, const std::vector<Piece>& held,
                         const std::vector<Piece>& wanted) const {
    std::size_t h = 0;
    std::size_t w = 0;
    std::uint64_t held_used = 0;
    std::uint64_t wanted_used = 0;
    std::uint64_t at = 0;
    while (h < held.size() && w < wanted.size()) {
      const std::uint64_t bytes = std::min(held[h].bytes - held_used, wanted[w].bytes - wanted_used);
      const Piece is{bytes, held[h].expression, held[h].coordinate + held_used};
      const Piece should{bytes, wanted[w].expression, wanted[w].coordinate + wanted_used};
      if (is.expression != should.expression || is.coordinate != should.coordinate) {
        return mismatch(rank, at, is, should);
      }
      at += bytes;
      if ((held_used += bytes) == held[h].bytes) ++h, held_used = 0;
      if ((wanted_used += bytes) == wanted[w].bytes) ++w, wanted_used = 0;
    }
    return {};
  }

  std::string mismatch(std::int32_t rank, std::uint64_t at, const Piece& is, const Piece& should) const {
    const ExpressionPool& pool = run_.expressions();
    const std::string wanted =
        fmt::format("it must hold {} from byte {} on", pool.print(should.expression), should.coordinate);
    if (is.expression == kUndefined) {
      return fmt::format("rank {} output[{}, {}) is never written; {}", rank, at, at + is.bytes, wanted);
    }
    return fmt::format("rank {} output[{}, {}) holds {} from byte {} on; {}", rank, at, at + is.bytes,
                       pool.print(is.expression), is.coordinate, wanted);
  }

  /// Order class `other`: any order, but everything once, and the same order on all ranks.
  std::string free_order_problem() {
    const bool same_everywhere = plan_.collective == Collective::all_reduce;
    std::vector<Piece> first_output;
    for (std::int32_t rank = 0; rank < plan_.ranks; ++rank) {
      const std::vector<Piece> output = run_.output_of(rank);
      std::uint64_t at = 0;
      const std::uint64_t start =
          plan_.collective == Collective::reduce_scatter     ? static_cast<std::uint64_t>(rank) * plan_.bytes
          : plan_.collective == Collective::reduce_scatter_v ? plan_.input_begin(rank, rank)
                                                             : 0;
      for (const Piece& piece : output) {
        const std::uint64_t end = at + piece.bytes;
        if (auto problem = run_.expressions().problem_as_total(piece.expression, plan_.average);
            !problem.empty()) {
          return fmt::format("rank {} output[{}, {}) holds {}: {}", rank, at, end,
                             run_.expressions().print(piece.expression), problem);
        }
        if (piece.coordinate != start + at) {
          return fmt::format("rank {} output[{}, {}) holds the elements from byte {} on, must be from {}",
                             rank, at, end, piece.coordinate, start + at);
        }
        at = end;
      }
      if (!same_everywhere) continue;
      if (rank == 0) {
        first_output = output;
      } else if (auto problem = difference(rank, output, first_output); !problem.empty()) {
        return problem + ", as at rank 0";
      }
    }
    return {};
  }

  const Plan& plan_;
  SymbolicRun& run_;
};

}  // namespace

CheckResult check(const Plan& plan) {
  if (CheckResult structure = check_structure(plan); !structure.ok) return structure;
  SymbolicRun run(plan);
  if (auto problem = run.run(); !problem.empty()) return {false, problem};
  if (plan.direct)
    if (auto problem = run.problem_after_end(); !problem.empty()) return {false, problem};
  if (auto problem = OutcomeCheck(plan, run).problem(); !problem.empty()) return {false, problem};
  return {};
}

}  // namespace tugline::core

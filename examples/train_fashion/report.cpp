// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace train_fashion {

double RunReport::waiting_share() const noexcept {
  double waiting = 0;
  double elapsed = 0;
  for (const auto& rank : ranks) {
    waiting += rank.waiting_s;
    elapsed += rank.elapsed_s;
  }
  return elapsed > 0 ? waiting / elapsed : 0;
}

double RunReport::overlapped_share() const noexcept {
  std::uint64_t overlapped = 0;
  std::uint64_t all = 0;
  for (const auto& rank : ranks) {
    overlapped += rank.overlapped_steps;
    all += rank.steps;
  }
  return all > 0 ? static_cast<double>(overlapped) / static_cast<double>(all) : 0;
}

bool RunReport::same_parameters() const noexcept {
  return std::all_of(ranks.begin(), ranks.end(), [&](const auto& rank) {
    return rank.parameters_hash == ranks.front().parameters_hash && rank.version == ranks.front().version;
  });
}

bool RunReport::same_outcomes() const noexcept {
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](const auto& rank) { return rank.outcomes_hash == ranks.front().outcomes_hash; });
}

std::string table(const RunReport& report) {
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(out, "{:>4} {:>9} {:>10} {:>9} {:>10}  {}\n", "rank", "images", "images/s", "waiting",
                 "overlapped", "parameters");
  for (const auto& rank : report.ranks) {
    const double images = static_cast<double>(rank.images);
    const double overlapped =
        rank.steps == 0 ? 0
                        : 100 * static_cast<double>(rank.overlapped_steps) / static_cast<double>(rank.steps);
    fmt::format_to(out, "{:>4} {:>9} {:>10.0f} {:>8.1f}% {:>9.1f}%  {:016x}\n", rank.rank, rank.images,
                   images / rank.elapsed_s, 100 * rank.waiting_s / rank.elapsed_s, overlapped,
                   rank.parameters_hash);
  }
  for (const auto& change : report.changes) {
    for (const auto& lost : change.lost) {
      fmt::format_to(out, "rank {} lost at step {} ({}): {} ranks go on, the step was {}\n", lost.rank,
                     change.step, lost.reason, change.size_after, change.redone ? "done again" : "complete");
    }
  }
  fmt::format_to(out,
                 "first bucket's reduction started before the backward pass ended in {:.1f}% of the steps\n",
                 100 * report.overlapped_share());
  fmt::format_to(out, "train accuracy {:.3f}\ntest accuracy {:.3f}\n", report.train_accuracy,
                 report.test_accuracy);
  return text;
}

}  // namespace train_fashion

// SPDX-License-Identifier: Apache-2.0
// What is done after the last step: the test, and gathering what every rank measured.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "evaluate.h"
#include "hash.h"
#include "trainer.h"
#include "tugline/error.h"

namespace train_fashion {
namespace {

constexpr std::chrono::milliseconds kLookUpDeadline{1000};

std::uint64_t hash_of_outcomes(const std::vector<MembershipChange>& changes) {
  std::string text;
  for (const auto& change : changes) {
    text += fmt::format("step {} agreement {} epoch {} size {} redone {}:", change.step, change.agreement,
                        change.epoch, change.size_after, change.redone);
    for (const auto& lost : change.lost)
      text += fmt::format(" {}", lost.rank);  // why is each rank's own view
  }
  return hash_of(std::as_bytes(std::span(text)));
}

}  // namespace

std::int64_t Trainer::count_correct(const FashionData& test) {
  std::int64_t correct = 0;
  membership_.settle(total_steps_, [&] {
    auto& communicator = membership_.communicator();
    const Share share = share_of(test.size(), communicator.rank(), communicator.size());
    correct = evaluate(network_, model_.current(), test, share);
    communicator.all_reduce(std::span(&correct, 1), tugline::ReduceOp::sum);
    membership_.operation_done();
  });
  return correct;
}

double Trainer::since_kill_us(std::int64_t time_ns) {
  for (const auto& lost : membership_.changes().back().lost) {
    const bool by_us = std::any_of(options_.kills.begin(), options_.kills.end(),
                                   [&](const auto& kill) { return kill.rank == lost.rank; });
    if (!by_us) continue;
    const std::string text = job_.get(fmt::format("killed/{}", lost.rank), kLookUpDeadline);
    std::int64_t killed_ns = 0;
    std::from_chars(text.data(), text.data() + text.size(), killed_ns);
    return static_cast<double>(time_ns - killed_ns) * 1e-3;
  }
  return -1;
}

RankReport Trainer::rank_report() {
  RankReport rank;
  rank.rank = first_rank_;
  rank.pid = getpid();
  rank.images = images_;
  rank.elapsed_s = static_cast<double>(end_ns_ - start_ns_) * 1e-9;
  rank.waiting_s = static_cast<double>(waiting_ns_ + membership_.agreeing_ns()) * 1e-9;
  rank.steps = total_steps_;
  rank.overlapped_steps = overlapped_steps_;
  rank.parameters_hash = hash_of(model_.current());
  rank.version = model_.version();
  rank.outcomes_hash = hash_of_outcomes(membership_.changes());
  if (!membership_.changes().empty()) {
    const auto& change = membership_.changes().back();
    rank.noticed_us = since_kill_us(change.noticed_ns);
    rank.agreed_us = since_kill_us(change.agreed_ns);
    rank.next_reduced_us = since_kill_us(change.next_reduced_ns);
  }
  return rank;
}

RunReport Trainer::report() {
  static_assert(std::is_trivially_copyable_v<RankReport> && sizeof(RankReport) % sizeof(std::uint64_t) == 0);
  RunReport report;
  report.ranks_at_start = first_size_;
  report.parameters = network_.parameter_count();
  report.steps = total_steps_;
  report.losses = losses_;
  report.elapsed_s = static_cast<double>(end_ns_ - start_ns_) * 1e-9;
  report.images_per_s = std::accumulate(seen_.begin(), seen_.end(), 0.0) / report.elapsed_s;
  const auto steps = static_cast<std::ptrdiff_t>(std::min(sampler_.steps_per_epoch(), total_steps_));
  report.train_accuracy = std::accumulate(correct_.end() - steps, correct_.end(), 0.0) /
                          std::accumulate(seen_.end() - steps, seen_.end(), 0.0);
  membership_.settle(total_steps_, [&] {
    auto& communicator = membership_.communicator();
    const RankReport mine = rank_report();
    report.ranks.resize(static_cast<std::size_t>(communicator.size()));
    communicator.all_gather(&mine, report.ranks.data(), sizeof(RankReport) / sizeof(std::uint64_t),
                            tugline::DataType::u64);
  });
  report.changes = membership_.changes();
  return report;
}

}  // namespace train_fashion

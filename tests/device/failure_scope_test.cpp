// SPDX-License-Identifier: Apache-2.0
// Failures of a CUDA stream as a property, without a GPU: random programs over several streams and events are
// carried out in random orders, and every piece of work is skipped exactly when something that it depends on
// has failed.
#include "device/cuda/failure_scope.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace tugline::device::cuda {
namespace {

FailurePtr failure(int number) {
  const Status status{.code = ErrorCode::torn, .detail = static_cast<std::uint64_t>(number)};
  return std::make_shared<Failure>(Failure{status, Error(ErrorCode::torn, "a task failed", "nothing")});
}

std::shared_ptr<FailureScope> scope() {
  return std::make_shared<FailureScope>(std::make_shared<Cell>());
}

struct Work {
  std::size_t stream = 0;
  Ticket ticket = 0;
  bool fails = false;           // if it runs
  bool may_skip = false;        // what the scope said when it was enqueued
  std::set<std::size_t> after;  // all work that it depends on
};

class Program {
 public:
  Program(unsigned seed, std::size_t streams)
      : random_(seed), scopes_(streams), tickets_(streams), known_(streams) {
    for (auto& each : scopes_) each = scope();
  }

  // Enqueues `steps` pieces, and carries some out in between.
  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      switch (pick(4)) {
        case 0:
          wait(pick(scopes_.size()), pick(scopes_.size()));
          break;
        case 1:
          carry_out_one();
          break;
        default:
          enqueue(pick(scopes_.size()));
      }
    }
    while (carry_out_one()) {
    }
  }
  const std::vector<std::shared_ptr<FailureScope>>& scopes() const { return scopes_; }

 private:
  std::size_t pick(std::size_t count) { return random_() % count; }

  void enqueue(std::size_t stream) {
    Work piece;
    piece.stream = stream;
    piece.ticket = ++tickets_[stream];
    piece.fails = pick(8) == 0;
    piece.after = known_[stream];
    piece.may_skip = scopes_[stream]->may_skip(piece.ticket);
    scopes_[stream]->begin(piece.ticket);
    known_[stream].insert(work_.size());
    work_.push_back(piece);
  }

  // An event recorded on one stream and waited for by another at once.
  void wait(std::size_t from, std::size_t to) {
    scopes_[from]->add_dependent(tickets_[from], scopes_[to], ++tickets_[to]);
    known_[to].insert(known_[from].begin(), known_[from].end());
  }

  bool carry_out_one() {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < work_.size(); ++i) {
      if (done_.count(i) != 0) continue;
      bool free = true;
      for (std::size_t before : work_[i].after) free = free && done_.count(before) != 0;
      if (free) ready.push_back(i);
    }
    if (ready.empty()) return false;
    const std::size_t chosen = ready[pick(ready.size())];
    const Work& piece = work_[chosen];
    bool skipped = false;
    for (std::size_t before : piece.after) skipped = skipped || failed_.count(before) != 0;
    const auto& own = scopes_[piece.stream];
    EXPECT_EQ(own->before(piece.ticket) != nullptr, skipped) << "work " << chosen;
    EXPECT_EQ(own->word().load() < piece.ticket, skipped) << "work " << chosen;  // what the device sees
    EXPECT_TRUE(piece.may_skip || !skipped) << "work " << chosen << " was not to look";
    if (!skipped && piece.fails) failed_.insert(chosen);
    own->finish(piece.ticket, !skipped && piece.fails ? failure(static_cast<int>(chosen)) : nullptr);
    done_.insert(chosen);
    return true;
  }

  std::mt19937 random_;
  std::vector<std::shared_ptr<FailureScope>> scopes_;
  std::vector<Ticket> tickets_;
  std::vector<std::set<std::size_t>> known_;
  std::vector<Work> work_;
  std::set<std::size_t> done_;
  std::set<std::size_t> failed_;
};

TEST(FailureScope, random_programs_skip_what_depends_on_a_failure_and_nothing_else) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Program program(seed, 2 + seed % 4);
    program.run(60);
    for (const auto& each : program.scopes()) EXPECT_TRUE(each->settled());
    if (HasFailure()) return;
  }
}

TEST(FailureScope, the_earlier_of_two_failures_counts_also_when_it_comes_later) {
  const auto one = scope();
  const auto two = scope();
  one->begin(1);
  two->begin(1);
  two->begin(3);
  one->add_dependent(1, two, 2);
  one->finish(1, failure(1));  // known to `two` at its ticket 2
  EXPECT_EQ(two->before(3)->status.detail, 1u);
  EXPECT_EQ(two->before(2), nullptr);
  two->finish(1, failure(2));
  EXPECT_EQ(two->before(2)->status.detail, 2u);
  EXPECT_EQ(two->first()->status.detail, 2u);
  two->finish(3, nullptr);
  EXPECT_TRUE(one->settled() && two->settled());
}

TEST(FailureScope, waits_without_pending_tasks_keep_nothing) {
  const auto one = scope();
  const auto two = scope();
  for (Ticket i = 1; i <= 1000; ++i) {
    one->add_dependent(i, two, i);
    EXPECT_TRUE(one->settled() && two->settled());
    EXPECT_FALSE(two->may_skip(i + 1));
  }
  one->begin(1001);
  one->add_dependent(1001, two, 1001);
  EXPECT_TRUE(two->may_skip(1002));
  EXPECT_FALSE(two->may_skip(1001));
  one->finish(1001, nullptr);
  EXPECT_TRUE(one->settled() && two->settled());
}

TEST(FailureScope, a_dependent_that_is_gone_is_no_matter) {
  const auto one = scope();
  one->begin(1);
  one->add_dependent(1, scope(), 1);
  one->finish(1, failure(1));
  EXPECT_TRUE(one->settled());
}

}  // namespace
}  // namespace tugline::device::cuda

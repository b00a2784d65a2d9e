// SPDX-License-Identifier: Apache-2.0
// Ranks as processes that do what they should, or make different calls, or call abort().
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <sstream>

#include "processes.h"

namespace tugline::process {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Together : public ::testing::Test {
 protected:
  void expect_nothing_left() {
    EXPECT_TRUE(around_.nothing_left()) << ::testing::PrintToString(around_.files()) << " brokers "
                                        << ::testing::PrintToString(around_.brokers());
  }
  void run(int size, const std::vector<std::string>& scenario, const std::function<void()>& before_exec = {},
           const std::map<std::string, std::string>& environment = {}) {
    auto ranks = around_.ranks(size, scenario, before_exec, environment);
    wait_for_all(ranks, 0);
    expect_nothing_left();
  }
  Surroundings around_;
};

TEST_F(Together, CollectivesOfTwo) {
  run(2, {"collectives"});
}
TEST_F(Together, CollectivesOfThree) {
  run(3, {"collectives"});
}
TEST_F(Together, CollectivesOfFive) {
  run(5, {"collectives"});
}

TEST_F(Together, CollectivesWithSixtyFourDescriptors) {
  // The broker is spawned by one of them and has the same limit.
  run(4, {"collectives"}, [] {
    const rlimit limit{64, 64};
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::_exit(125);
  });
}

TEST_F(Together, CollectivesAsOnLinux510) {
  run(3, {"collectives"}, {}, {{"TUGLINE_KERNEL", "5.10"}});
}

// A rank that has its result may go while others still work on theirs.
TEST_F(Together, MayEndRightAfterTheLastOperation) {
  for (int round = 0; round < 3; ++round)
    for (const char* bytes : {"8", "2000000"}) run(3, {"leave_at_once", bytes});
}

struct Difference {
  const char* name;
  const char* first;
  const char* other;
};

class Mismatched : public Together, public ::testing::WithParamInterface<Difference> {};

TEST_P(Mismatched, EndsOnEveryRankWithinASecond) {
  const auto& [name, first, other] = GetParam();
  auto ranks = around_.ranks(3, {"mismatch", name});
  for (const auto& end : wait_for_all(ranks, 1)) {
    EXPECT_THAT(
        expect_three_lines(end.error, "mismatch"),
        AllOf(HasSubstr("rank 0 called " + std::string(first)), HasSubstr("called " + std::string(other))));
    EXPECT_LT(took_ms(end.output), 1000);
  }
  expect_nothing_left();
}

INSTANTIATE_TEST_SUITE_P(
    Process, Mismatched,
    ::testing::Values(
        Difference{"count", "all_reduce(count 4, f32, sum)", "all_reduce(count 5, f32, sum)"},
        Difference{"large_count", "all_reduce(count 200000, f32, sum)", "all_reduce(count 200001, f32, sum)"},
        Difference{"type", "all_reduce(count 4, f32, sum)", "all_reduce(count 4, i32, sum)"},
        Difference{"operator", "all_reduce(count 4, f32, sum)", "all_reduce(count 4, f32, max)"},
        Difference{"root", "broadcast(count 4, f32, root 0)", "broadcast(count 4, f32, root 1)"},
        Difference{"collective", "all_reduce(count 4, f32, sum)", "all_gather(count 4, f32)"},
        Difference{"split", "split()", "barrier()"},
        Difference{"order", "all_reduce(count 4, f32, sum)", "barrier"},
        Difference{"agreement", "agree()", "barrier()"},
        Difference{"agreement_of_others", "all_reduce(count 200000, f32, sum)", "agree()"},
        Difference{"agreement_of_the_parent", "barrier()", "agree()"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_F(Together, GoOnAfterAMismatch) {
  auto ranks = around_.ranks(3, {"mismatch_and_on"});
  wait_for_all(ranks, 0);
  expect_nothing_left();
}

TEST_F(Together, AbortFromAnotherThreadEndsAllAndTheyGoOn) {
  auto ranks = around_.ranks(3, {"abort"});
  for (const auto& end : wait_for_all(ranks, 0)) {
    EXPECT_THAT(expect_three_lines(end.error, "aborted"), HasSubstr("the operator asks for it"));
    EXPECT_LT(took_ms(end.output), 1000);
  }
  expect_nothing_left();
}

TEST_F(Together, ForkedChildrenChangeNothing) {
  auto ranks = around_.ranks(3, {"fork"});
  for (auto& rank : ranks) ASSERT_TRUE(rank->has_said("ready")) << rank->error();
  const auto& said = ranks[0]->output();
  const pid_t child = std::stoi(said.substr(said.find("child ") + 6));
  EXPECT_EQ(::kill(child, 0), 0) << "the child runs";
  for (auto& rank : ranks) rank->say("go");
  wait_for_all(ranks, 0);
  // It holds copies of the rank's descriptors and mappings, and nobody waits for it.
  EXPECT_EQ(::kill(child, 0), 0) << "the child still runs";
  expect_nothing_left();
  EXPECT_EQ(::kill(child, SIGKILL), 0);
}

TEST_F(Together, StartUpOfFourRanks) {
  using Clock = std::chrono::steady_clock;
  const auto elapsed = [](Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  double best_job = 1e9;
  double best_processes = 1e9;
  for (int round = 0; round < 5; ++round) {
    const auto start = Clock::now();
    auto ranks = around_.ranks(4, {"start_up"});
    for (auto& rank : ranks) ASSERT_TRUE(rank->has_said("up")) << rank->error();
    best_job = std::min(best_job, elapsed(start));
    for (auto& rank : ranks) rank->say("end");
    wait_for_all(ranks, 0);
    expect_nothing_left();
    // The same program, which ends where it would join.
    const auto again = Clock::now();
    auto bare = around_.ranks(4, {"nothing"});
    for (auto& process : bare) EXPECT_EQ(process->wait().exit_code, 1);
    best_processes = std::min(best_processes, elapsed(again));
  }
  std::printf(
      "start-up of 4 ranks to the end of the first barrier: %.1f ms, of 4 processes: %.1f ms, beyond: %.1f "
      "ms\n",
      best_job, best_processes, best_job - best_processes);
}

}  // namespace
}  // namespace tugline::process

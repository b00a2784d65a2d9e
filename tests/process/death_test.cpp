// SPDX-License-Identifier: Apache-2.0
// Ranks and brokers that die or stop at chosen places.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <set>
#include <sstream>

#include "processes.h"

namespace tugline::process {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::Not;
using ::testing::SizeIs;

std::vector<std::string> lines_with(const std::string& text, const std::string& part) {
  std::istringstream stream(text);
  std::vector<std::string> found;
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("tugline: ")) return found;  // the error's own lines
    if (line.find(part) != std::string::npos) found.push_back(line);
  }
  return found;
}

class Death : public ::testing::Test {
 protected:
  using Ranks = std::vector<std::unique_ptr<Process>>;

  void wait_until_ready(Ranks& ranks) {
    for (auto& rank : ranks) ASSERT_TRUE(rank->has_said("ready")) << rank->error();
  }
  enum class Everybody : std::uint8_t { is_told, is_told_unless_done };

  /// Kills one; the others, told to go on, lose it and go on without it.
  void expect_loss_of(Ranks& ranks, std::size_t victim, Everybody everybody = Everybody::is_told) {
    ranks[victim]->kill(SIGKILL);
    EXPECT_EQ(ranks[victim]->wait().signal, SIGKILL);
    const auto lost = "lost " + std::to_string(victim) + "\n";
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      if (rank != victim) ranks[rank]->say("go");
    std::set<bool> verdicts;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (rank == victim) continue;
      const auto end = ranks[rank]->wait();
      EXPECT_EQ(end.exit_code, 0) << end.output << end.error;
      EXPECT_THAT(end.output, HasSubstr(lost));
      verdicts.insert(end.output.find("\ncommitted\n") != std::string::npos);
      EXPECT_LT(took_ms(end.output), 1000);
      if (everybody == Everybody::is_told_unless_done && end.error.empty()) continue;
      EXPECT_THAT(expect_three_lines(end.error, "peer_lost"), HasSubstr("rank " + std::to_string(victim)));
    }
    EXPECT_EQ(verdicts.size(), 1U) << "some were told committed, others aborted";
    expect_nothing_left();
  }
  void expect_nothing_left() {
    EXPECT_TRUE(around_.nothing_left()) << ::testing::PrintToString(around_.files()) << " brokers "
                                        << ::testing::PrintToString(around_.brokers());
  }
  Surroundings around_;
};

TEST_F(Death, InTheLoop) {
  for (std::size_t victim = 0; victim < 3; ++victim) {
    auto ranks = around_.ranks(3, {"wait_at", "loop"});
    wait_until_ready(ranks);
    expect_loss_of(ranks, victim);
  }
}

TEST_F(Death, InCollectivesOnRegisteredMemory) {
  for (std::size_t victim = 0; victim < 3; ++victim) {
    auto ranks = around_.ranks(3, {"registered"});
    wait_until_ready(ranks);
    expect_loss_of(ranks, victim);
  }
}

TEST_F(Death, AStoppedRankIsNamedAndEndsTheWaitAtTheLimit) {
  for (const std::string place : {"barrier", "reduction", "agree", "message", "group"}) {
    SCOPED_TRACE(place);
    auto ranks = around_.ranks(3, {"peer_stays_away", place}, {},
                               {{"TUGLINE_REPORT_AFTER", "50ms"}, {"TUGLINE_FAIL_AFTER", "800ms"}});
    wait_until_ready(ranks);
    ranks[2]->kill(SIGSTOP);
    const auto named = "rank 2 (pid " + std::to_string(ranks[2]->pid()) + ") is stopped (state T since ";
    for (std::size_t rank = 0; rank < 2; ++rank) ranks[rank]->say("go");
    for (std::size_t rank = 0; rank < 2; ++rank)
      EXPECT_TRUE(ranks[rank]->has_said("failed")) << ranks[rank]->error();
    for (std::size_t rank = 0; rank < 2; ++rank) {
      ranks[rank]->say("go");
      const auto end = ranks[rank]->wait();
      EXPECT_EQ(end.exit_code, 0);
      const auto error_at = end.error.find("tugline: timed_out: ");
      ASSERT_NE(error_at, std::string::npos) << end.error;
      EXPECT_THAT(expect_three_lines(end.error.substr(error_at), "timed_out"),
                  AllOf(HasSubstr("TUGLINE_FAIL_AFTER (800 ms)"), HasSubstr(named)));
      // After 50, 100, 200, 400 and 800 ms: without the doubling there were sixteen.
      const auto reports = lines_with(end.error, "waiting for ");
      EXPECT_THAT(reports, AllOf(Not(IsEmpty()), SizeIs(Le(5)), Each(HasSubstr(named))));
    }
    ranks[2]->kill(SIGKILL);
    ranks[2]->wait();
    expect_nothing_left();
  }
}

TEST_F(Death, AsleepInAnOperation) {
  auto ranks = around_.ranks(3, {"wait_at", "loop"});
  wait_until_ready(ranks);
  ranks[1]->say("go");
  ASSERT_TRUE(ranks[1]->has_said("waiting")) << ranks[1]->error();
  // Alone in its barrier it soon stops spinning: it sleeps most of the time, and ever again. Its part of the
  // barrier is done, so the others may find all that they need, or its death first.
  int naps = 0;
  ASSERT_TRUE(eventually([&] { return (naps += ranks[1]->sleeps() ? 1 : 0) > 20; }));
  expect_loss_of(ranks, 1, Everybody::is_told_unless_done);
}

TEST_F(Death, BetweenJoinAndCommunicator) {
  // The others have their communicator and wait for the one that will never come.
  auto launch = [&](int rank) {
    return around_.rank(rank, 3, {"wait_at", rank == 1 ? "joined" : "communicator"});
  };
  Ranks ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.push_back(std::make_unique<Process>(launch(rank)));
  wait_until_ready(ranks);
  ranks[1]->kill(SIGKILL);
  ranks[1]->wait();
  for (const int rank : {0, 2}) ranks[static_cast<std::size_t>(rank)]->say("go");
  for (const int rank : {0, 2}) {
    // It dies in the first of the scenario's own steps, where it expects no loss.
    const auto end = ranks[static_cast<std::size_t>(rank)]->wait();
    EXPECT_EQ(end.exit_code, 1);
    EXPECT_THAT(expect_three_lines(end.error, "peer_lost"), HasSubstr("rank 1"));
  }
  expect_nothing_left();
}

TEST_F(Death, OfTheRankThatMadeTheSegments) {
  Ranks ranks;
  ranks.push_back(std::make_unique<Process>(around_.rank(0, 3, {"wait_at", "communicator"})));
  ASSERT_TRUE(ranks[0]->has_said("ready")) << ranks[0]->error();  // it was the first: board and bank are its
  ranks[0]->kill(SIGKILL);
  ranks[0]->wait();
  for (int rank = 1; rank < 3; ++rank)
    ranks.push_back(std::make_unique<Process>(around_.rank(rank, 3, {"wait_at", "communicator"})));
  for (std::size_t rank = 1; rank < 3; ++rank) {
    ASSERT_TRUE(ranks[rank]->has_said("ready")) << ranks[rank]->error();
    ranks[rank]->say("go");
  }
  for (std::size_t rank = 1; rank < 3; ++rank) {
    const auto end = ranks[rank]->wait();
    EXPECT_EQ(end.exit_code, 1);
    EXPECT_THAT(expect_three_lines(end.error, "peer_lost"), HasSubstr("rank 0"));
  }
  expect_nothing_left();
}

TEST_F(Death, WhileOneWaitsInAgreeAndOthersForItsMessage) {
  auto ranks = around_.ranks(4, {"agree_beside_message"});
  wait_until_ready(ranks);
  ranks[3]->kill(SIGKILL);
  ranks[3]->wait();
  ranks.pop_back();
  wait_for_all(ranks, 0);
  expect_nothing_left();
}

TEST_F(Death, AStoppedRankIsWaitedFor) {
  auto ranks = around_.ranks(3, {"wait_at", "loop"});
  wait_until_ready(ranks);
  ranks[1]->kill(SIGSTOP);
  for (auto& rank : ranks) rank->say("go");
  // The log is the others' report after a second.
  const auto reported = [](Process& rank) {
    return eventually([&] {
      (void)rank.has_said("never", 1ms);
      return rank.error().find("waiting for 1") != std::string::npos;
    });
  };
  EXPECT_TRUE(reported(*ranks[0])) << ranks[0]->error();
  EXPECT_TRUE(reported(*ranks[2])) << ranks[2]->error();
  ranks[1]->kill(SIGCONT);
  for (const auto& end : wait_for_all(ranks, 0)) EXPECT_THAT(end.output, HasSubstr("nobody was lost"));
  expect_nothing_left();
}

TEST_F(Death, OfTheBrokerIsToldToEveryMemberWithinASecond) {
  for (const char* place : {"barrier", "agree"}) {
    auto broker = around_.broker();
    auto ranks = around_.ranks(3, {"until_broker_lost", place});
    wait_until_ready(ranks);
    const auto start = std::chrono::steady_clock::now();
    broker->kill(SIGKILL);
    broker->wait();
    for (const auto& end : wait_for_all(ranks, 1)) expect_three_lines(end.error, "broker_lost");
    EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
  }
  // A broker that is killed cannot take its socket with it; the next one does.
  auto next = around_.broker();
  next->kill(SIGTERM);
  EXPECT_EQ(next->wait().exit_code, 0);
  expect_nothing_left();
}

}  // namespace
}  // namespace tugline::process

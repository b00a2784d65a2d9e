// SPDX-License-Identifier: Apache-2.0
// Processes of a job that are stopped, or told to stop, at awkward moments: nobody hangs, and all ends when
// asked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "processes.h"

namespace tugline::process {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  // Not by an iterator: that throws where a process ends while its file in /proc is read.
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// As /proc shows it: 'S' asleep, 'T' stopped; '-' gone.
char state_of(pid_t pid) {
  const auto text = read_all("/proc/" + std::to_string(pid) + "/stat");
  const auto name_end = text.rfind(')');
  return name_end == std::string::npos ? '-' : text[name_end + 2];
}

/// Also when nobody has collected it yet.
bool has_ended(pid_t pid) {
  const char state = state_of(pid);
  return state == '-' || state == 'Z';
}

class Stop : public ::testing::Test {
 protected:
  Launch run_of(std::vector<std::string> rank, int ranks = 2) const {
    auto launch = around_.broker_launch();
    const auto command = launch.command.front();
    launch.command = {command, "run", "-n", std::to_string(ranks), "--no-prefix", "--"};
    launch.command.insert(launch.command.end(), rank.begin(), rank.end());
    return launch;
  }
  std::string program() const { return around_.rank(0, 1, {}).command.front(); }
  /// The broker that `tugline run` started in these surroundings; 0: none.
  pid_t broker() const {
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const auto name = entry.path().filename().string();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      if (read_all(entry.path() / "cmdline").find("--job-scoped") != std::string::npos &&
          read_all(entry.path() / "environ").find(around_.runtime().string()) != std::string::npos)
        return std::stoi(name);
    }
    return 0;
  }
  /// Pids that ranks have said as "rank PID".
  static std::vector<pid_t> ranks_in(const std::string& output) {
    std::vector<pid_t> pids;
    for (auto at = output.find("rank "); at != std::string::npos; at = output.find("rank ", at + 1))
      pids.push_back(std::stoi(output.substr(at + 5)));
    return pids;
  }
  /// Two ranks that stay until they are ended, and their pids.
  std::vector<pid_t> start_two(Process& run) {
    EXPECT_TRUE(eventually([&] {
      (void)run.has_said("none", Milliseconds(1));
      return ranks_in(run.output()).size() == 2;
    })) << run.output()
        << run.error();
    return ranks_in(run.output());
  }
  const std::vector<std::string> stays_{"/bin/sh", "-c", "echo rank $$; exec sleep 300"};
  Surroundings around_;
};

TEST_F(Stop, CtrlCEndsAJobWithAStoppedRank) {
  Process run(run_of(stays_));
  const auto ranks = start_two(run);
  ASSERT_EQ(ranks.size(), 2U);
  ::kill(ranks[1], SIGSTOP);
  ASSERT_TRUE(eventually([&] { return state_of(ranks[1]) == 'T'; }));
  run.kill(SIGINT);
  EXPECT_EQ(run.wait(4s).exit_code, 1);  // before the grace of five seconds
  for (const auto rank : ranks) EXPECT_TRUE(has_ended(rank));
  EXPECT_TRUE(around_.nothing_left());
}

TEST_F(Stop, CtrlCEndsAJobWithAStoppedBroker) {
  Process run(run_of(stays_));
  start_two(run);
  const auto pid = broker();
  ASSERT_NE(pid, 0);
  ::kill(pid, SIGSTOP);
  ASSERT_TRUE(eventually([&] { return state_of(pid) == 'T'; }));
  run.kill(SIGINT);
  EXPECT_EQ(run.wait(4s).exit_code, 1);
  EXPECT_TRUE(has_ended(pid));
  EXPECT_TRUE(around_.nothing_left());
}

TEST_F(Stop, CtrlZStopsTheRanksUntilTheJobGoesOn) {
  Process run(run_of(stays_));
  const auto ranks = start_two(run);
  ASSERT_EQ(ranks.size(), 2U);
  for (int round = 0; round < 2; ++round) {
    run.kill(SIGTSTP);
    EXPECT_TRUE(eventually([&] {
      return state_of(run.pid()) == 'T' && state_of(ranks[0]) == 'T' && state_of(ranks[1]) == 'T';
    }));
    run.kill(SIGCONT);
    EXPECT_TRUE(eventually([&] {
      return state_of(run.pid()) == 'S' && state_of(ranks[0]) == 'S' && state_of(ranks[1]) == 'S';
    }));
  }
  run.kill(SIGINT);
  EXPECT_EQ(run.wait(4s).exit_code, 1);
  EXPECT_TRUE(around_.nothing_left());
}

TEST_F(Stop, AWaitDoesNotRunOutWhileTheJobIsStopped) {
  // Rank 1 comes when the gate opens; rank 0 waits for it and says so.
  const auto gate = (around_.folder() / "gate").string();
  ASSERT_EQ(::mkfifo(gate.c_str(), 0600), 0);
  auto launch = run_of({"/bin/sh", "-c",
                        "echo rank $$; [ $TUGLINE_RANK = 0 ] || read line < " + gate + "; exec " + program() +
                            " collectives"});
  launch.environment["TUGLINE_REPORT_AFTER"] = "100ms";
  launch.environment["TUGLINE_FAIL_AFTER"] = "4s";
  Process run(launch);
  start_two(run);
  ASSERT_TRUE(eventually([&] {
    (void)run.has_said("none", Milliseconds(1));
    return run.error().find("waiting for") != std::string::npos;
  })) << run.error();
  run.kill(SIGTSTP);
  EXPECT_TRUE(eventually([&] { return state_of(run.pid()) == 'T'; }));
  (void)run.has_said("none", 5s);  // for longer than a wait may last
  run.kill(SIGCONT);
  std::ofstream(gate) << "go\n";
  const auto end = run.wait();
  EXPECT_EQ(end.exit_code, 0) << end.error;
  EXPECT_TRUE(around_.nothing_left());
}

TEST_F(Stop, AJobThatWasStoppedGoesOnAsIfNothingHadBeen) {
  // Rank 1 comes when the gate opens, so that the others wait when all are stopped.
  const auto gate = (around_.folder() / "gate").string();
  ASSERT_EQ(::mkfifo(gate.c_str(), 0600), 0);
  Process run(run_of({"/bin/sh", "-c",
                      "echo rank $$; [ $TUGLINE_RANK = 0 ] || read line < " + gate + "; exec " + program() +
                          " collectives"}));
  const auto ranks = start_two(run);
  run.kill(SIGTSTP);
  EXPECT_TRUE(eventually([&] { return state_of(run.pid()) == 'T'; }));
  run.kill(SIGCONT);
  std::ofstream(gate) << "go\n";
  const auto end = run.wait();
  EXPECT_EQ(end.exit_code, 0) << end.error;
  EXPECT_TRUE(around_.nothing_left());
}

TEST_F(Stop, AStoppedBrokerIsNamedByThoseWhoStart) {
  auto broker = around_.broker();
  broker->kill(SIGSTOP);
  ASSERT_TRUE(eventually([&] { return state_of(broker->pid()) == 'T'; }));
  Process rank(around_.rank(0, 1, {"collectives"}));
  const auto end = rank.wait();
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(expect_three_lines(end.error, "timed_out"),
              HasSubstr("the broker at " + around_.socket_path() + " did not answer in time"));
  const auto stopped = "its process " + std::to_string(broker->pid()) + " is stopped";
  EXPECT_THAT(end.error, AllOf(HasSubstr("did not answer in time: " + stopped + "\n"),
                               HasSubstr("answer to join from the broker at"), HasSubstr("is not stopped")));
  broker->kill(SIGCONT);
  broker->kill(SIGTERM);
  EXPECT_EQ(broker->wait().exit_code, 0);
  EXPECT_TRUE(around_.nothing_left());
}

TEST_F(Stop, AStoppedBrokerDoesNotDisturbCollectives) {
  auto broker = around_.broker();
  auto ranks = around_.ranks(2, {"wait_at", "loop"});
  for (auto& rank : ranks) ASSERT_TRUE(rank->has_said("ready")) << rank->error();
  broker->kill(SIGSTOP);
  ASSERT_TRUE(eventually([&] { return state_of(broker->pid()) == 'T'; }));
  for (auto& rank : ranks) rank->say("go");
  for (auto& rank : ranks) ASSERT_TRUE(rank->has_said("nobody was lost")) << rank->error();
  broker->kill(SIGCONT);
  wait_for_all(ranks, 0);
  broker->kill(SIGTERM);
  EXPECT_EQ(broker->wait().exit_code, 0);
  EXPECT_TRUE(around_.nothing_left());
}

TEST_F(Stop, ARankThatComesAfterTheBrokersEndStartsNone) {
  const auto gate = (around_.folder() / "gate").string();
  ASSERT_EQ(::mkfifo(gate.c_str(), 0600), 0);
  Process run(run_of({"/bin/sh", "-c",
                      "echo rank $$; [ $TUGLINE_RANK = 0 ] || read line < " + gate + "; exec " + program() +
                          " wait_at nowhere"}));
  start_two(run);
  ASSERT_TRUE(run.has_said("waiting")) << run.error();
  const auto pid = broker();
  ASSERT_NE(pid, 0);
  ::kill(pid, SIGKILL);
  std::ofstream(gate) << "go\n";
  const auto end = run.wait();
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.error, AllOf(HasSubstr("broker_lost"), HasSubstr("no broker answers at")));
  EXPECT_TRUE(around_.nothing_left()) << ::testing::PrintToString(around_.files());
}

}  // namespace
}  // namespace tugline::process

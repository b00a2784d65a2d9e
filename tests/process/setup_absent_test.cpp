// SPDX-License-Identifier: Apache-2.0
// Ranks that end before the broker has met them: nobody waits for them, and everybody is told why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>

#include "processes.h"

namespace tugline::process {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Absent : public ::testing::Test {
 protected:
  /// `tugline run` of three ranks: rank 2 is this line of a shell, the others wait for it in a barrier.
  Launch run_with(const std::string& rank_2, const std::string& scenario = "wait_at nowhere") {
    Launch launch = around_.broker_launch();
    const auto program = around_.rank(0, 3, {}).command.front();
    launch.command = {launch.command.front(),
                      "run",
                      "-n",
                      "3",
                      "--no-prefix",
                      "--",
                      "/bin/sh",
                      "-c",
                      "if [ $TUGLINE_RANK = 2 ]; then " + rank_2 + "; fi; exec " + program + " " + scenario};
    return launch;
  }
  /// The two that wait hear of it, agree to go on without it, and do.
  void expect_absent(const std::string& rank_2, const std::string& how) {
    Process run(run_with(rank_2));
    const auto end = run.wait();
    EXPECT_THAT(end.error, HasSubstr("tugline: peer_lost: rank 2 " + how + " before it joined\n"));
    EXPECT_THAT(end.output, AllOf(HasSubstr("waiting\n"), HasSubstr("lost 2\n")));
    // Milliseconds on an idle machine.
    EXPECT_LT(took_ms(end.output), 5000) << end.output;
    EXPECT_TRUE(around_.nothing_left());
  }
  Surroundings around_;
};

TEST_F(Absent, ARankThatFailsAtOnce) {
  expect_absent("exit 3", "ended with exit code 3");
}

TEST_F(Absent, ARankThatIsKilled) {
  expect_absent("kill -9 $$", "was killed by signal 9 (Killed)");
}

TEST_F(Absent, ARankWhoseProgramKnowsNothingOfTheJob) {
  expect_absent("exit 0", "ended with exit code 0");
}

TEST_F(Absent, ARankThatIsRefused) {
  // It connects, but with the wrong token.
  const auto program = around_.rank(0, 3, {}).command.front();
  expect_absent("TUGLINE_TOKEN=" + std::string(64, 'a') + " exec " + program + " start_up",
                "ended with exit code 1");
}

TEST_F(Absent, ItsEndIsNoticedWhileTheOthersWait) {
  const auto gate = (around_.folder() / "gate").string();
  ASSERT_EQ(::mkfifo(gate.c_str(), 0600), 0);
  Process run(run_with("read line < " + gate + "; exit 3"));
  ASSERT_TRUE(run.has_said("waiting")) << run.error();
  std::ofstream(gate) << "go\n";
  const auto end = run.wait();
  EXPECT_THAT(end.error, HasSubstr("rank 2 ended with exit code 3 before it joined"));
  EXPECT_THAT(end.output, HasSubstr("lost 2\n"));
}

TEST_F(Absent, TheExitCodeIsThatOfAnyFailedRank) {
  Process failed(run_with("exit 3", "start_up"));
  auto end = failed.wait();
  EXPECT_EQ(end.exit_code, 1) << end.error;
  EXPECT_THAT(end.error, AllOf(HasSubstr("rank 2 (pid "), HasSubstr("ended with exit code 3\n")));
  // Whoever goes on without it decides what it is worth; a rank that ended well is no failure.
  Process fine(run_with("exit 0"));
  end = fine.wait();
  EXPECT_EQ(end.exit_code, 0) << end.error;
}

TEST_F(Absent, AStandingBrokerForgetsItWithTheLauncher) {
  auto broker = around_.broker();
  auto launch = run_with("exit 3");
  launch.command.insert(launch.command.begin() + 2, {"--broker", around_.socket_path()});
  Process run(launch);
  EXPECT_THAT(run.wait().error, HasSubstr("rank 2 ended with exit code 3 before it joined"));
  auto ranks = around_.ranks(3, {"collectives"});
  wait_for_all(ranks, 0);
  broker->kill(SIGTERM);
  broker->wait();
  EXPECT_TRUE(around_.nothing_left());
}

// Without `tugline run` nobody sees a rank's end before the broker does: the wait says so, and what limits
// it.
TEST_F(Absent, AWaitWithoutALauncherSaysWhatIsKnown) {
  auto launch = around_.rank(0, 2, {"start_up"});
  launch.environment["TUGLINE_FAIL_AFTER"] = "300ms";
  launch.environment["TUGLINE_REPORT_AFTER"] = "100ms";
  Process alone(launch);
  const auto end = alone.wait();
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(expect_three_lines(end.error, "timed_out"),
              AllOf(HasSubstr("TUGLINE_FAIL_AFTER (300 ms)"), HasSubstr("rank 1 has not joined the job")));
  EXPECT_THAT(end.error, HasSubstr("waiting for 1"));
}

}  // namespace
}  // namespace tugline::process

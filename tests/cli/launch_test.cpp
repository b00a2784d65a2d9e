// SPDX-License-Identifier: Apache-2.0
// `tugline run` where it must refuse to start, and where it is killed: limits, a broker that is in use, what
// is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>

#include "process.h"

namespace tugline::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;

std::vector<std::string> run_shell(std::vector<std::string> options, const std::string& script) {
  std::vector<std::string> arguments{"run"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.insert(arguments.end(), {"--", "sh", "-c", script});
  return arguments;
}

void expect_refused(const Ended& ended, const std::string& words) {
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_EQ(ended.signal, 0);
  EXPECT_EQ(ended.output, "");
  EXPECT_EQ(std::count(ended.error.begin(), ended.error.end(), '\n'), 3) << ended.error;
  EXPECT_THAT(ended.error, HasSubstr(words));
}

TEST(Launch, OneJobAtATimeAtABroker) {
  Command broker({"broker", "--job", "standing"});
  ASSERT_TRUE(broker.wait_for("broker.sock\n"));
  std::string socket;
  for (const auto& file : broker.files())
    if (file.ends_with("broker.sock")) socket = file;
  for (int round = 0; round < 3; ++round) {
    Command first(run_shell({"-n", "2", "--broker", socket}, "echo here; exec sleep 300"));
    ASSERT_TRUE(first.wait_for("here", 2));
    auto refused = Command(run_shell({"-n", "2", "--broker", socket}, "echo here")).wait();
    expect_refused(
        refused, "a job is running at this broker, started by process " + std::to_string(first.pid()) + " ");
    // The broker is free at once, whether its launcher ended or was killed.
    first.signal(round == 1 ? SIGKILL : SIGTERM);
    first.wait();
    auto next = Command(run_shell({"-n", "2", "--broker", socket}, "echo here")).wait();
    EXPECT_EQ(next.exit_code, 0) << next.error;
  }
  broker.signal(SIGTERM);
  EXPECT_EQ(broker.wait().exit_code, 0);
}

TEST(Launch, ALimitOnFileSizesIsNamedBeforeAnythingStarts) {
  for (const rlim_t bytes : {0, 100 * 1024}) {
    for (const auto& arguments : {run_shell({"-n", "2"}, "echo here"),
                                  std::vector<std::string>{"bench", "all_reduce", "--np", "2", "-n", "1"}}) {
      Command command(arguments, {.file_bytes = bytes});
      expect_refused(command.wait(), "files may have " + std::to_string(bytes) + " (ulimit -f)");
      EXPECT_THAT(command.files(), IsEmpty());
    }
    Command broker({"broker", "--job", "limited"}, {.file_bytes = bytes});
    if (bytes == 0) expect_refused(broker.wait(), "File too large");
    Command doctor({"doctor", "--np", "2"}, {.file_bytes = bytes});
    const auto ended = doctor.wait();
    EXPECT_EQ(ended.exit_code, 1) << ended.error;
    EXPECT_THAT(ended.output, AllOf(HasSubstr("files may have " + std::to_string(bytes) + " bytes"),
                                    HasSubstr("ulimit -f unlimited")));
  }
  // A rank that starts a broker of its own has no launcher that looks.
  Command bench({"bench", "all_reduce", "--threads", "--np", "2", "-n", "1"}, {.file_bytes = 100 * 1024});
  const auto ended = bench.wait();
  EXPECT_EQ(ended.signal, 0);
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.error, HasSubstr("exceeds the limit on file sizes, 102400 bytes"));
}

TEST(Launch, AKilledOneLeavesNoProcessAndNoFile) {
  // Grandchildren that ignore all they can, one of them in a session of its own.
  const std::string stubborn = "trap '' TERM INT HUP; ";
  Command command(run_shell({"-n", "2"}, stubborn + "(" + stubborn +
                                             "sleep 300; sleep 300) & setsid sh -c \"" +
                                             "trap '' TERM INT HUP; echo here; sleep 300; sleep 300\" & " +
                                             "sleep 300; sleep 300"));
  ASSERT_TRUE(command.wait_for("here", 2));
  EXPECT_GE(command.marked().size(), 8U);
  command.signal(SIGKILL);
  EXPECT_EQ(command.wait().signal, SIGKILL);
  EXPECT_TRUE(command.nothing_left());
  EXPECT_THAT(command.files(), IsEmpty());
}

TEST(Launch, AKilledOneOfAnInnerJobToo) {
  const std::string inner = std::string(TUGLINE_COMMAND) +
                            " run -n 1 -- sh -c \"trap '' TERM INT; echo here; sleep 300; sleep 300\"";
  Command command(run_shell({"-n", "1"}, inner));
  ASSERT_TRUE(command.wait_for("here"));
  command.signal(SIGKILL);
  command.wait();
  EXPECT_TRUE(command.nothing_left());
  EXPECT_THAT(command.files(), IsEmpty());
}

TEST(Launch, OthersAreLeftAloneByAGuard) {
  Command other(run_shell({"-n", "1"}, "echo here; exec sleep 300"));
  ASSERT_TRUE(other.wait_for("here"));
  {
    Command killed(run_shell({"-n", "1"}, "echo here; exec sleep 300"));
    ASSERT_TRUE(killed.wait_for("here"));
    killed.signal(SIGKILL);
    killed.wait();
    EXPECT_TRUE(killed.nothing_left());
  }
  other.signal(SIGTERM);
  EXPECT_EQ(other.wait().exit_code, 1);
  EXPECT_THAT(other.marked(), IsEmpty());
}

}  // namespace
}  // namespace tugline::cli

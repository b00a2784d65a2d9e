// SPDX-License-Identifier: Apache-2.0
// `tugline run` where it must refuse to start, and where it is killed: limits, a broker that is in use, what
// is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

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

std::string socket_of(const Command& broker) {
  for (const auto& file : broker.files())
    if (file.ends_with("broker.sock")) return file;
  return {};
}

/// The process of the broker that serves at this socket, 0 if there is none.
pid_t broker_of(const std::string& socket) {
  const auto job = std::filesystem::path(socket).parent_path().filename().string();
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline");
    std::ostringstream text;  // not by an iterator: that throws where the process ends meanwhile
    text << file.rdbuf();
    const std::string words = text.str();
    if (words.find(std::string("\0broker\0", 8)) != std::string::npos && words.find(job) != std::string::npos)
      return std::stoi(entry.path().filename());
  }
  return 0;
}

TEST(Launch, SaysThatTheBrokerHasEnded) {
  Command watched(run_shell({"-n", "2"}, "echo here; exec sleep 300"));
  ASSERT_TRUE(watched.wait_for("here", 2));
  const pid_t own = broker_of(socket_of(watched));
  ASSERT_NE(own, 0);
  ASSERT_EQ(::kill(own, SIGKILL), 0);
  EXPECT_TRUE(watched.wait_for(
      "tugline: the broker of the job has ended; ranks that need it get the error broker_lost"));
  watched.signal(SIGTERM);
  EXPECT_EQ(watched.wait().exit_code, 1);
}

// A socket whose owner was killed, and a path at which there is nothing.
TEST(Launch, ABrokerThatIsNotThereIsAWrongWord) {
  Command broker({"broker", "--job", "standing"});
  ASSERT_TRUE(broker.wait_for("broker.sock\n"));
  const auto socket = socket_of(broker);
  broker.signal(SIGKILL);
  broker.wait();
  ASSERT_TRUE(std::filesystem::exists(socket));
  for (const auto& path : {socket, socket + ".not_there"}) {
    const auto refused = Command(run_shell({"-n", "2", "--broker", path}, "echo here")).wait();
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_EQ(refused.output, "");
    EXPECT_THAT(refused.error, HasSubstr("tugline: not_found: no broker answers at \"" + path + "\"\n"));
    EXPECT_EQ(std::count(refused.error.begin(), refused.error.end(), '\n'), 3) << refused.error;
  }
  const auto runtime = std::filesystem::path(socket).parent_path().parent_path().string();
  for (const char* job : {"standing", "not_there"}) {
    const auto refused =
        Command({"doctor", "--job", job}, {.environment = {{"TUGLINE_RUNTIME_DIR", runtime}}}).wait();
    EXPECT_EQ(refused.exit_code, 2) << job;
    EXPECT_EQ(refused.output, "");
    EXPECT_THAT(refused.error,
                MatchesRegex("tugline: not_found: no broker answers at .*/" + std::string(job) + "/.*"));
  }
}

TEST(Launch, ANameThatIsNotUsedIsNotLostWithoutAWord) {
  const auto named =
      Command(run_shell({"-n", "2"}, "echo $TUGLINE_JOB"), {.environment = {{"TUGLINE_JOB", "mine"}}}).wait();
  EXPECT_EQ(named.exit_code, 0);
  EXPECT_THAT(named.error, HasSubstr("TUGLINE_JOB \"mine\" is not this job's name"));
  const std::string inner = std::string(TUGLINE_COMMAND) + " run -n 1 -- true";
  const auto nested = Command(run_shell({"-n", "1"}, inner)).wait();
  EXPECT_EQ(nested.exit_code, 0);
  EXPECT_EQ(nested.error, "") << "the name is the outer job's";
}

TEST(Launch, SaysWhomItWaitsFor) {
  Command stubborn(
      run_shell({"-n", "3", "--grace", "60"},
                "[ $TUGLINE_RANK = 1 ] || trap '' TERM; echo here; while :; do sleep 1000; done"));
  ASSERT_TRUE(stubborn.wait_for("here", 3));
  stubborn.signal(SIGTERM);
  EXPECT_TRUE(stubborn.wait_for(
      "tugline: waiting up to 59 s more (--grace) for ranks that have not ended: 0, 2; Ctrl-C again "
      "kills them at once\n"));
  stubborn.signal(SIGTERM);
  EXPECT_EQ(stubborn.wait().exit_code, 1);
  Command left(run_shell(
      {"-n", "1", "--grace", "60"},
      "(setsid sh -c \"trap '' TERM; echo up; exec >/dev/null; sleep 300; sleep 300\" &) | read up"));
  EXPECT_TRUE(
      left.wait_for("tugline: waiting up to 59 s more (--grace) for what the ranks left running: process "));
  left.signal(SIGTERM);
  left.wait();
  EXPECT_TRUE(left.nothing_left());
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

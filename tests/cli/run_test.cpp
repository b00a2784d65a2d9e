// SPDX-License-Identifier: Apache-2.0
// `tugline run` from outside: exit codes, output, signals, nothing left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <map>
#include <sstream>

#include "process.h"
#include "topology/file.h"
#include "topology/machine.h"

namespace tugline::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;
using testing::UnorderedElementsAre;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> run_shell(int ranks, std::vector<std::string> options, const std::string& script) {
  std::vector<std::string> arguments{"run", "-n", std::to_string(ranks)};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.insert(arguments.end(), {"--", "sh", "-c", script});
  return arguments;
}

/// Everything of a command is gone: processes, sockets, token, directory.
void expect_nothing_left(const Command& command) {
  EXPECT_THAT(command.marked(), IsEmpty());
  EXPECT_THAT(command.files(), IsEmpty());
}

void expect_three_lines(const std::string& error, const std::string& names) {
  auto lines = lines_of(error);
  ASSERT_EQ(lines.size(), 3U) << error;
  EXPECT_THAT(lines[0], testing::StartsWith("tugline: "));
  EXPECT_THAT(lines[0], HasSubstr(names));
  EXPECT_THAT(lines[1], testing::StartsWith("  where: "));
  EXPECT_THAT(lines[2], testing::StartsWith("  do: "));
}

TEST(Run, BindsRanksAsTheTopologySaysAndToNothingElse) {
  const auto of = [](const std::string& description) {
    TemporaryDirectory directory;
    const std::string path = (directory.path() / "topology.json").string();
    topology::save_topology(topology::read_synthetic(description), path);
    Command command({"run", "-n", "2", "--no-prefix", "--bind", "numa", "--", "sh", "-c",
                     "grep Cpus_allowed_list /proc/self/status | cut -f2"},
                    {.environment = {{"TUGLINE_TOPOLOGY", path}}});
    return command.wait();
  };
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  if (!CPU_ISSET(0, &allowed)) GTEST_SKIP() << "this process may not run on processor 0";
  // Both on the one processor that there is.
  const auto one = of("numa:1 core:1 pu:1");
  ASSERT_EQ(one.exit_code, 0) << one.error;
  EXPECT_EQ(one.output, "0\n0\n");
  const auto foreign = of("numa:2 core:2000 pu:1");
  EXPECT_EQ(foreign.exit_code, 1);
  EXPECT_THAT(foreign.error, HasSubstr("the topology places rank 1 on processor "));
  EXPECT_THAT(foreign.error, HasSubstr("unset TUGLINE_TOPOLOGY"));
}

TEST(Run, EndsWithZeroWhenAllRanksDo) {
  Command command(run_shell(3, {}, "exit 0"));
  auto ended = command.wait();
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.output + ended.error, "");
  expect_nothing_left(command);
}

TEST(Run, SetsTheVariablesOfTuglineAndTorchrun) {
  auto ended = run_command(run_shell(
      2, {"--env", "MORE=a=b"},
      "echo $TUGLINE_RANK $TUGLINE_SIZE $TUGLINE_LOCAL_RANK $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE "
      "$GROUP_RANK $MASTER_ADDR $MORE ${#TUGLINE_TOKEN}; [ $MASTER_PORT -gt 1023 ] && [ -S "
      "$TUGLINE_SOCKET_PATH ] "
      "&& [ -n \"$TUGLINE_JOB\" ]"));
  EXPECT_EQ(ended.exit_code, 0) << ended.error;
  EXPECT_THAT(lines_of(ended.output), UnorderedElementsAre("[0] 0 2 0 0 2 0 2 0 127.0.0.1 a=b 64",
                                                           "[1] 1 2 1 1 2 1 2 0 127.0.0.1 a=b 64"));
}

TEST(Run, PrefixesLinesAndKeepsTheLastPartialOne) {
  auto ended = run_command(run_shell(2, {}, "printf 'a\\n\\nb'; printf 'c\\nd' >&2"));
  EXPECT_THAT(lines_of(ended.output),
              UnorderedElementsAre("[0] a", "[0] ", "[0] b", "[1] a", "[1] ", "[1] b"));
  EXPECT_THAT(lines_of(ended.error), UnorderedElementsAre("[0] c", "[0] d", "[1] c", "[1] d"));
}

TEST(Run, NoPrefixHandsOutputThrough) {
  auto ended = run_command(run_shell(1, {"--no-prefix"}, "printf 'a\\nb'"));
  EXPECT_EQ(ended.output, "a\nb");
}

TEST(Run, ManyLinesOfManyRanksStayWholeAndInOrder) {
  auto ended = run_command(run_shell(4, {},
                                     "i=0; while [ $i -lt 3000 ]; do echo \"$RANK line $i of some length to "
                                     "fill pipes\"; i=$((i+1)); done"));
  ASSERT_EQ(ended.exit_code, 0);
  std::map<char, int> next;
  for (const auto& line : lines_of(ended.output)) {
    char rank = line.at(1);
    ASSERT_EQ(line, std::string("[") + rank + "] " + rank + " line " + std::to_string(next[rank]) +
                        " of some length to fill pipes");
    ++next[rank];
  }
  EXPECT_EQ(next, (std::map<char, int>{{'0', 3000}, {'1', 3000}, {'2', 3000}, {'3', 3000}}));
}

TEST(Run, OnlyRankZeroReadsStandardInput) {
  Command command(run_shell(2, {}, "cat"), {.input = "hello\n"});
  EXPECT_EQ(command.wait().output, "[0] hello\n");
}

TEST(Run, ReportsEachFailedRankInOneLine) {
  Command command(run_shell(3, {}, "[ $RANK = 2 ] && exit 7; exit 0"));
  auto ended = command.wait();
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.error, MatchesRegex("tugline: rank 2 \\(pid [0-9]+\\) ended with exit code 7\n"));
  expect_nothing_left(command);
}

TEST(Run, AKilledRankFailsTheJobUnlessLostRanksAreAllowed) {
  const char* script = "[ $RANK = 1 ] && kill -9 $$; exit 0";
  auto ended = run_command(run_shell(3, {}, script));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.error, HasSubstr("was killed by signal 9 (Killed)"));
  EXPECT_EQ(run_command(run_shell(3, {"--allow-lost"}, script)).exit_code, 0);
  EXPECT_EQ(run_command(run_shell(2, {"--allow-lost"}, "kill -9 $$")).exit_code, 1);
  EXPECT_EQ(run_command(run_shell(3, {"--allow-lost"}, "[ $RANK = 1 ] && exit 3; exit 0")).exit_code, 1);
}

TEST(Run, TheOthersGoOnWhenARankDies) {
  TemporaryDirectory directory;
  std::string go = (directory.path() / "go").string();
  ASSERT_EQ(::mkfifo(go.c_str(), 0600), 0);
  Command command(run_shell(2, {}, "[ $RANK = 1 ] && exit 3; read line < " + go + "; echo went on"));
  ASSERT_TRUE(command.wait_for("rank 1 (pid"));
  std::ofstream(go) << "go\n";
  auto ended = command.wait();
  EXPECT_EQ(ended.output, "[0] went on\n");
  EXPECT_EQ(ended.exit_code, 1);
}

TEST(Run, KillOnFailureEndsTheJob) {
  Command command(run_shell(3, {"--kill-on-failure"}, "[ $RANK = 1 ] && exit 3; exec sleep 1000"));
  auto ended = command.wait();
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.error, HasSubstr("rank 1"));
  EXPECT_THAT(ended.error, Not(HasSubstr("rank 0")));
  expect_nothing_left(command);
}

TEST(Run, CtrlCEndsTheWholeTree) {
  Command command(
      run_shell(3, {"--grace", "60"},
                "sleep 1000 & setsid sleep 1000 & (sleep 1000 & exec sleep 1000) & echo ready; wait"));
  ASSERT_TRUE(command.wait_for("ready", 3));
  command.signal(SIGINT);
  auto ended = command.wait();
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.error, HasSubstr("signal 2"));
  expect_nothing_left(command);
}

TEST(Run, WhoIgnoresSigtermIsKilledAfterTheGrace) {
  Command command(run_shell(2, {"--grace", "1"},
                            "trap '' TERM INT; setsid sh -c \"trap '' TERM; echo deep; while :; do sleep "
                            "1000; done\" & echo ready; "
                            "while :; do sleep 1000; done"));
  ASSERT_TRUE(command.wait_for("ready", 2));
  ASSERT_TRUE(command.wait_for("deep", 2));
  command.signal(SIGTERM);
  EXPECT_EQ(command.wait().exit_code, 1);
  expect_nothing_left(command);
}

TEST(Run, ASecondCtrlCDoesNotWaitForTheGrace) {
  Command command(
      run_shell(2, {"--grace", "3600"},
                "trap 'sleep 0.4; echo stays' INT; echo ready; while :; do sleep 1000 & wait; done"));
  ASSERT_TRUE(command.wait_for("ready", 2));
  command.signal(SIGINT);
  ASSERT_TRUE(command.wait_for("stays", 2));  // by then another signal is another request
  command.signal(SIGINT);
  EXPECT_EQ(command.wait().exit_code, 1);
  expect_nothing_left(command);
}

// As timeout(1) and a shell's kill send it: to the process and to its group.
TEST(Run, OneRequestOfTwoSignalsLeavesTheGrace) {
  Command command(run_shell(
      2, {"--grace", "3600"},
      "trap 'sleep 0.1; echo in order; exit 0' TERM; echo ready; while :; do sleep 1000 & wait; done"));
  ASSERT_TRUE(command.wait_for("ready", 2));
  command.signal(SIGTERM);
  command.signal(SIGTERM);
  EXPECT_TRUE(command.wait_for("in order", 2));
  command.wait();
  expect_nothing_left(command);
}

TEST(Run, WhatRanksLeaveRunningEndsWithTheJob) {
  Command command(run_shell(2, {}, "setsid sleep 1000 & sleep 1000 & exit 0"));
  EXPECT_EQ(command.wait().exit_code, 0);
  expect_nothing_left(command);
}

TEST(Run, RanksDieWhenTheCommandIsKilled) {
  Command command(run_shell(3, {}, "echo ready; exec sleep 1000"));
  ASSERT_TRUE(command.wait_for("ready", 3));
  command.signal(SIGKILL);
  EXPECT_EQ(command.wait().signal, SIGKILL);
  EXPECT_TRUE(command.nothing_left());
}

TEST(Run, NohupHoldsForTheRanksToo) {
  auto before = ::signal(SIGHUP, SIG_IGN);
  Command command(run_shell(2, {}, "echo ready; read line; kill -HUP $$; echo stayed"), {.input = "go\n"});
  ::signal(SIGHUP, before);
  ASSERT_TRUE(command.wait_for("ready", 2));
  command.signal(SIGHUP);
  auto ended = command.wait();
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.output, HasSubstr("[0] stayed"));
  EXPECT_THAT(ended.output, HasSubstr("[1] stayed"));
}

TEST(Run, EndsWhenNobodyReadsItsOutput) {
  Command command(run_shell(2, {}, "while :; do echo y; done"), {.close_output_early = true});
  auto ended = command.wait();
  EXPECT_EQ(ended.signal, SIGPIPE);
  EXPECT_EQ(ended.error, "");
  expect_nothing_left(command);
}

TEST(Run, EndsWhenNobodyReadsTheRanksThemselves) {
  Command command(run_shell(2, {"--no-prefix"}, "while :; do echo y; done"), {.close_output_early = true});
  auto ended = command.wait();
  EXPECT_EQ(ended.signal, SIGPIPE);
  EXPECT_THAT(ended.error, Not(HasSubstr("rank")));
  expect_nothing_left(command);
}

TEST(Run, ATooFullDeviceIsTheReasonThatIsGiven) {
  Command command(run_shell(2, {}, "while :; do echo y; done"), {.output_file = "/dev/full"});
  auto ended = command.wait();
  EXPECT_EQ(ended.exit_code, 1);
  expect_three_lines(ended.error,
                     "cannot write the ranks' output to standard output: No space left on device");
  expect_nothing_left(command);
}

TEST(Run, StandardErrorThatCannotBeWrittenEndsNobody) {
  // Long after the launcher could not tell of the other one's end.
  Command command(run_shell(2, {}, "[ $RANK = 1 ] && exit 3; sleep 0.5; echo stayed"),
                  {.error_file = "/dev/full"});
  auto ended = command.wait();
  EXPECT_EQ(ended.exit_code, 1) << "a rank has failed";
  EXPECT_THAT(ended.output, HasSubstr("[0] stayed"));
}

// The numbers in such a /proc are other processes': what is left cannot be looked for, nor ended.
TEST(Run, ProcOfAnotherNamespaceIsAnErrorNotAHang) {
  if (Command({"config"}, {.foreign_proc = true}).wait().exit_code != 0)
    GTEST_SKIP() << "unshare(1) may make no namespaces here";
  auto ended = Command(run_shell(2, {}, "echo here"), {.foreign_proc = true}).wait();
  EXPECT_EQ(ended.signal, 0);
  EXPECT_THAT(ended.output, HasSubstr("[1] here"));
  EXPECT_THAT(ended.error, HasSubstr("or shows another PID namespace"));
}

TEST(Run, NamesAMissingProgram) {
  auto ended = run_command({"run", "-n", "2", "--", "no-such-program"});
  EXPECT_EQ(ended.exit_code, 2);
  expect_three_lines(ended.error, "\"no-such-program\"");
  ended = run_command({"run", "-n", "2", "--", "/no/such/program"});
  EXPECT_EQ(ended.exit_code, 2);
  expect_three_lines(ended.error, "\"/no/such/program\"");
}

TEST(Run, NamesAProgramThatCannotRun) {
  TemporaryDirectory directory;
  std::string plain = (directory.path() / "plain").string();
  std::ofstream(plain) << "no program\n";
  auto ended = run_command({"run", "-n", "2", "--", plain});
  EXPECT_EQ(ended.exit_code, 2);
  expect_three_lines(ended.error, plain);
  EXPECT_THAT(ended.error, HasSubstr("is not executable"));
  auto folder = directory.path().string();
  expect_three_lines(run_command({"run", "--", folder}).error, "\"" + folder + "\" is a directory");
  expect_three_lines(run_command({"run", "--", "/dev/null"}).error, "\"/dev/null\" is no regular file");
  expect_three_lines(run_command({"run", "--", plain + "/x"}).error, "cannot be reached: Not a directory");
  expect_three_lines(run_command({"run", "--", ""}).error, "empty word");

  auto start = [&](const std::string& text) {
    std::ofstream(plain) << text;
    EXPECT_EQ(::chmod(plain.c_str(), 0755), 0);
    Command command({"run", "-n", "2", "--", plain});
    auto refused = command.wait();
    EXPECT_EQ(refused.exit_code, 1);
    expect_three_lines(refused.error, plain);
    expect_nothing_left(command);
    return refused.error;
  };
  EXPECT_THAT(start("no program\n"), HasSubstr("a script needs a first line such as #!/bin/sh"));
  EXPECT_THAT(start("#! /nope -x\n"), HasSubstr("the interpreter \"/nope\": No such file or directory"));
  EXPECT_THAT(start("#!/bin/sh\r\n"), HasSubstr("the interpreter \"/bin/sh\""));
  EXPECT_THAT(start("#!/etc/passwd\n"), HasSubstr("the interpreter \"/etc/passwd\": Permission denied"));
}

TEST(Run, UsageErrorsEndWithTwo) {
  for (std::vector<std::string> arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"nonsense"},
                                             {"run", "-n", "0", "--", "true"},
                                             {"run", "-n", "-1", "--", "true"},
                                             {"run", "-n", "2"},
                                             {"broker", "--job", "../x"},
                                             {"broker", "--socket", "/tmp/"},
                                             {"broker", "--socket", "/tmp/" + std::string(81, 's')},
                                             {"bench", "all_reduce", "-b", "x"}}) {
    auto ended = run_command(arguments);
    EXPECT_EQ(ended.exit_code, 2);
    expect_three_lines(ended.error, "invalid_argument");
    EXPECT_EQ(ended.output, "");
  }
}

TEST(Run, ARankWithAWrongSettingSaysSoOnce) {
  const TemporaryDirectory directory;
  const auto file = (directory.path() / "wrong.toml").string();
  std::ofstream(file) << "spin_us = \"soon\"\n";
  for (const auto& setting : {std::string("TUGLINE_SPIN_US=soon"), "TUGLINE_CONFIG_FILE=" + file}) {
    const auto ended = run_command({"run", "-n", "2", "--env", setting, "--env", "TUGLINE_DEBUG=trace", "--",
                                    TUGLINE_COMMAND, "bench", "all_reduce", "-n", "1"});
    EXPECT_EQ(ended.exit_code, 1);
    const auto lines = lines_of(ended.error);
    EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                            [](const auto& line) { return line.find("soon") != std::string::npos; }),
              2)
        << ended.error;
    EXPECT_EQ(lines.size(), 8U) << "three lines and the launcher's of each rank:\n" << ended.error;
  }
}

TEST(Run, RefusesADeviceThatIsNotThere) {
  auto ended = run_command({"run", "--device", "cuda", "--", "true"});
  EXPECT_EQ(ended.exit_code, 2);
  expect_three_lines(ended.error, "cuda");
}

TEST(Run, WorksWith64Descriptors) {
  Command command(run_shell(8, {}, "echo here"), {.descriptors = 64});
  auto ended = command.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.error;
  EXPECT_EQ(lines_of(ended.output).size(), 8U);
  auto refused = Command(run_shell(64, {}, "echo here"), {.descriptors = 64}).wait();
  EXPECT_EQ(refused.exit_code, 1);
  expect_three_lines(refused.error, "descriptors");
}

TEST(Run, SaysWhenThereIsNoBrokerAtTheSocket) {
  auto ended = run_command({"run", "--broker", "/no/such/broker.sock", "--", "true"});
  EXPECT_EQ(ended.exit_code, 2);
  expect_three_lines(ended.error, "/no/such/broker.sock");
}

TEST(Run, AnUnwritableRuntimeDirectoryIsNamed) {
  TemporaryDirectory directory;
  std::string file = (directory.path() / "file").string();
  std::ofstream(file) << "in the way\n";
  Command command({"run", "--", "true"}, {.environment = {{"TUGLINE_RUNTIME_DIR", file}}});
  auto ended = command.wait();
  EXPECT_EQ(ended.exit_code, 1);
  expect_three_lines(ended.error, file);
}

TEST(Run, ATooLongRuntimeDirectoryIsNamed) {
  std::string path = "/tmp";
  while (path.size() < 5000) path += "/not_there_because_too_long";
  Command command({"run", "--", "true"}, {.environment = {{"TUGLINE_RUNTIME_DIR", path}}});
  auto ended = command.wait();
  EXPECT_EQ(ended.exit_code, 1);
  expect_three_lines(ended.error, "too long");
}

TEST(Broker, OutlivesItsJobsAndCleansUpOnSigterm) {
  Command broker({"broker", "--job", "standing"});
  ASSERT_TRUE(broker.wait_for("broker.sock\n"));
  std::string socket;
  for (const auto& file : broker.files()) {
    if (file.ends_with("broker.sock")) socket = file;
  }
  ASSERT_FALSE(socket.empty());
  for (int round = 0; round < 2; ++round) {
    auto ended = run_command({"run", "-n", "2", "--broker", socket, "--", "sh", "-c",
                              "[ $TUGLINE_JOB = standing ] && [ -S $TUGLINE_SOCKET_PATH ]"});
    EXPECT_EQ(ended.exit_code, 0) << ended.error;
  }
  Command second({"broker", "--socket", socket});
  auto refused = second.wait();
  EXPECT_EQ(refused.exit_code, 1);
  expect_three_lines(refused.error, socket.substr(0, socket.rfind('/')));
  broker.signal(SIGTERM);
  EXPECT_EQ(broker.wait().exit_code, 0);
  expect_nothing_left(broker);
}

}  // namespace
}  // namespace tugline::cli

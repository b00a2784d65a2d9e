// SPDX-License-Identifier: Apache-2.0
// Output that cannot be written: every subcommand says so, or ends without a word where nobody reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "process.h"

namespace tugline::cli {
namespace {

using testing::HasSubstr;

struct Case {
  std::vector<std::string> arguments;
  std::string names;  ///< what could not be written
};

class Unwritable : public testing::TestWithParam<Case> {};

std::string error_of(Command& command) {
  auto ended = command.wait();
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_EQ(std::count(ended.error.begin(), ended.error.end(), '\n'), 3) << ended.error;
  EXPECT_TRUE(command.nothing_left());
  EXPECT_THAT(command.files(), testing::IsEmpty());
  return ended.error;
}

TEST_P(Unwritable, AFullDeviceIsAnErrorThatSaysSo) {
  Command command(GetParam().arguments, {.output_file = "/dev/full"});
  auto error = error_of(command);
  EXPECT_THAT(error, HasSubstr("cannot write " + GetParam().names + " to standard output"));
  EXPECT_THAT(error, HasSubstr("errno 28 (No space left on device)"));
  EXPECT_THAT(error, HasSubstr("free space"));
}

TEST_P(Unwritable, SoIsAClosedDescriptor) {
  Command command(GetParam().arguments, {.no_output = true});
  auto error = error_of(command);
  EXPECT_THAT(error, HasSubstr("cannot write " + GetParam().names + " to standard output"));
  EXPECT_THAT(error, HasSubstr("errno 9 (Bad file descriptor)"));
}

TEST_P(Unwritable, WhereNobodyReadsItEndsQuietly) {
  Command command(GetParam().arguments, {.close_output_early = true});
  auto ended = command.wait();
  EXPECT_EQ(ended.signal, SIGPIPE);
  EXPECT_EQ(ended.error, "");
  EXPECT_TRUE(command.nothing_left());
  EXPECT_THAT(command.files(), testing::IsEmpty());
}

const std::vector<std::string> kThreads{"bench", "all_reduce", "--threads", "--np", "3",
                                        "-b",    "8",          "-e",        "8"};

INSTANTIATE_TEST_SUITE_P(
    All, Unwritable,
    testing::Values(Case{{"--help"}, "the text"}, Case{{"--version"}, "the text"},
                    Case{{"run", "--help"}, "the text"}, Case{{"config"}, "the settings"},
                    Case{{"config", "--json"}, "the settings"}, Case{{"plan", "all_reduce"}, "the plan"},
                    Case{{"plan", "all_reduce", "--steps"}, "the plan"},
                    Case{{"plan", "all_reduce", "--json"}, "the plan"}, Case{{"doctor"}, "the findings"},
                    Case{{"doctor", "--json"}, "the findings"},
                    Case{{"plan", "--check", TUGLINE_SOURCE_DIR "/examples/plans/star.json"}, "the verdict"},
                    Case{{"broker", "--job", "unread"}, "the socket's path"},
                    Case{{"broker", "--job", "unread", "--json"}, "the socket's path"},
                    Case{{"run", "-n", "2", "--", "echo", "hello"}, "the ranks' output"},
                    Case{kThreads, "the bench's table"}));

TEST(UnwritableBench, SaysWhyAndWhichRankEnded) {
  Command command({"bench", "all_reduce", "--np", "3", "-b", "8", "-e", "1K", "-f", "2"},
                  {.output_file = "/dev/full"});
  auto ended = command.wait();
  EXPECT_EQ(ended.exit_code, 1);
  // The three lines, then the launcher's one; the ranks that only lost their peer say nothing.
  EXPECT_THAT(ended.error,
              testing::MatchesRegex("tugline: system: cannot write the bench's table to standard "
                                    "output: No space left on device\n  where: .*\n  do: .*\n"
                                    "tugline: rank 0 .pid [0-9]+. ended with exit code 1\n"));
  EXPECT_TRUE(command.nothing_left());
}

TEST(UnwritableBench, EndsQuietlyWhenItsReaderHasSeenEnough) {
  for (const char* ranks : {"2", "4"}) {
    Command command({"bench", "all_reduce", "--np", ranks, "-b", "4", "-e", "1M", "-i", "16", "-n", "1"});
    ASSERT_TRUE(command.wait_for("#wrong"));
    command.stop_reading();
    auto ended = command.wait();
    EXPECT_EQ(ended.signal, SIGPIPE);
    EXPECT_EQ(ended.error, "");
    EXPECT_TRUE(command.nothing_left());
    EXPECT_THAT(command.files(), testing::IsEmpty());
  }
}

}  // namespace
}  // namespace tugline::cli

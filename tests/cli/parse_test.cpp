// SPDX-License-Identifier: Apache-2.0
// The command line: what is accepted, and that every refusal names the argument and the help to read.
#include "parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/sweep.h"
#include "tugline/error.h"
#include "usage.h"
#include "values.h"

namespace tugline::cli {
namespace {

using testing::HasSubstr;

Command parsed(std::vector<std::string> arguments) {
  return parse(arguments).command;
}

std::string refusal(std::vector<std::string> arguments) {
  try {
    parse(arguments);
  } catch (const UsageError& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << testing::PrintToString(arguments);
  return {};
}

TEST(Parse, RunKeepsTheProgramsOwnOptions) {
  auto run = std::get<RunOptions>(parsed(
      {"run", "-n", "3", "--env", "A=1", "--env", "B=x=y", "--", "prog", "-n", "7", "--json", "--", "-x"}));
  EXPECT_EQ(run.ranks, 3);
  EXPECT_EQ(run.command, (std::vector<std::string>{"prog", "-n", "7", "--json", "--", "-x"}));
  ASSERT_EQ(run.environment.size(), 2U);
  EXPECT_EQ(run.environment[1], (std::pair<std::string, std::string>{"B", "x=y"}));
  run = std::get<RunOptions>(parsed({"run", "-n", "2", "--no-prefix", "prog", "-n", "9"}));
  EXPECT_EQ(run.command, (std::vector<std::string>{"prog", "-n", "9"}));
  EXPECT_EQ(run.prefix, Prefix::none);
  run = std::get<RunOptions>(parsed({"run", "-n", "2", "--", "--prog", "-n"}));
  EXPECT_EQ(run.command, (std::vector<std::string>{"--prog", "-n"}));
  run = std::get<RunOptions>(parsed({"run", "-n", "2", "prog", "--", "x"}));
  EXPECT_EQ(run.command, (std::vector<std::string>{"prog", "--", "x"}));
}

TEST(Parse, BenchTakesTheFlagsOfNcclTests) {
  auto bench = std::get<BenchOptions>(
      parsed({"bench", "all_reduce", "--np", "4",  "-b",   "8",  "-e",  "16M", "-f", "4",  "-n", "50", "-w",
              "2",     "-c",         "1",    "-d", "half", "-o", "all", "-G",  "3",  "-R", "1",  "-r", "2"}));
  EXPECT_EQ(bench.begin_bytes, 8U);
  EXPECT_EQ(bench.end_bytes, 16U << 20U);
  EXPECT_EQ(bench.step_factor, 4U);
  EXPECT_EQ(bench.iterations, 50);
  EXPECT_EQ(bench.types, std::vector{DataType::f16});
  EXPECT_EQ(bench.operators.size(), static_cast<std::size_t>(kReduceOpCount));
  EXPECT_EQ(bench.graph_replays, 3);
  EXPECT_EQ(bench.buffers, BufferKind::registered);
  EXPECT_EQ(std::get<BenchOptions>(parsed({"bench", "alltoall", "-b", "4G"})).end_bytes,
            std::uint64_t{4} << 30U);
}

struct Refused {
  std::vector<std::string> arguments;
  std::string names;  ///< what the text must name
};
class Refusals : public testing::TestWithParam<Refused> {};

TEST_P(Refusals, NameTheArgumentAndTheHelp) {
  auto text = refusal(GetParam().arguments);
  EXPECT_THAT(text, HasSubstr(GetParam().names));
  EXPECT_THAT(text, HasSubstr("--help"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
}

INSTANTIATE_TEST_SUITE_P(
    All, Refusals,
    testing::Values(
        Refused{{}, "subcommand"}, Refused{{"fly"}, "fly"}, Refused{{"run", "-n", "0", "--", "x"}, "\"0\""},
        Refused{{"run", "-n", "-3", "--", "x"}, "-3"}, Refused{{"run", "-n", "257", "--", "x"}, "257"},
        Refused{{"run", "-n", "two", "--", "x"}, "two"}, Refused{{"run", "-n", "2"}, "program"},
        Refused{{"run", "-n", "2", "--"}, "program"}, Refused{{"run", "--env", "A", "--", "x"}, "\"A\""},
        Refused{{"run", "--device", "tpu", "--", "x"}, "tpu"},
        Refused{{"run", "--restart", "3", "--", "x"}, "--restart"}, Refused{{"bench"}, "collective"},
        Refused{{"bench", "all_rduce"}, "all_rduce"}, Refused{{"bench", "all_reduce", "-b", "1X"}, "1X"},
        Refused{{"bench", "all_reduce", "-b", "8", "-e", "4"}, "last size"},
        Refused{{"bench", "all_reduce", "-b", "-8"}, "-8"},
        Refused{{"bench", "all_reduce", "-f", "1"}, "factor"},
        Refused{{"bench", "all_reduce", "-i", "0"}, "0 bytes"},
        Refused{{"bench", "broadcast", "--np", "2", "-r", "2"}, "root 2"},
        Refused{{"bench", "all_reduce", "-d", "f8"}, "f8"},
        Refused{{"bench", "all_reduce", "-n", "-1"}, "-1"},
        Refused{{"bench", "all_reduce", "--unchecked"}, "--plan"}, Refused{{"plan"}, "collective"},
        Refused{{"plan", "ring"}, "ring"},
        Refused{{"plan", "broadcast", "--np", "2", "--root", "5"}, "root 5"},
        Refused{{"doctor", "--np", "0"}, "\"0\""}, Refused{{"doctor", "--np", "2", "--job", "j"}, "--job"},
        Refused{{"config", "--jason"}, "tugline config has no option --jason"},
        Refused{{"doctor", "x"}, "tugline doctor does not take the word \"x\""},
        Refused{{"bench", "all_reduce", "-z", "3"}, "tugline bench has no option -z"},
        Refused{{"run", "--env", "TUGLINE_RANK=9", "--", "x"}, "--env: TUGLINE_RANK is what run tells"},
        Refused{{"run", "--env", "WORLD_SIZE=9", "--", "x"}, "--env: WORLD_SIZE is what run tells"},
        Refused{{"broker"}, "--job"}, Refused{{"broker", "--job", ""}, "--job: its value is empty"},
        Refused{{"broker", "--socket", ""}, "--socket: its value is empty"},
        Refused{{"run", "--broker", "", "--", "x"}, "--broker: its value is empty"},
        Refused{{"bench", "all_reduce", "--json", ""}, "--json: its value is empty"},
        Refused{{"bench", "all_reduce", "--plan", ""}, "--plan: its value is empty"},
        Refused{{"bench", "all_reduce", "-f", "0"}, "\"0\" is not a factor of at least 2"},
        Refused{{"bench", "all_reduce", "-f", "-2"}, "factor"},
        Refused{{"bench", "all_reduce", "-i", "1", "-b", "1", "-e", "1G"}, "more than 100000 sizes"},
        Refused{{"bench", "all_reduce", "-e", "99999999999999999999"}, "99999999999999999999"},
        Refused{{"bench", "all_reduce", "-n", "99999999999"}, "99999999999"},
        Refused{{"bench", "all_reduce", "-w", "-1"}, "-1"},
        Refused{{"bench", "all_reduce", "-c", "-1"}, "-1"},
        Refused{{"bench", "all_reduce", "-r", "-1"}, "-1"},
        Refused{{"bench", "all_reduce", "-G", "-1"}, "-1"},
        Refused{{"bench", "all_reduce", "--batch", "-1"}, "-1"},
        Refused{{"bench", "all_reduce", "--np", "0"}, "\"0\""},
        Refused{{"bench", "all_reduce", "-R", "2"}, "\"2\""},
        Refused{{"bench", "all_reduce", "-R", "1", "--buffers", "library"}, "--buffers"},
        Refused{{"bench", "all_reduce", "--buffers", "plain"}, "private, library, registered"},
        Refused{{"bench", "all_reduce", "--offset", "4096"}, "from 0 to 4095"},
        Refused{{"plan", "--check", ""}, "--check: its value is empty"},
        Refused{{"plan", "--check", "f", "--np", "2"}, "--check"},
        Refused{{"plan", "all_reduce", "--builder", "star"}, "one_shot_packet"},
        Refused{{"plan", "all_reduce", "--builder", ""}, "one_shot_packet"},
        Refused{{"plan", "all_reduce", "--scratch", "1"}, "65536"},
        Refused{{"plan", "all_reduce", "--cores", "0"}, "\"0\""},
        Refused{{"plan", "barrier", "--bytes", "8"}, "a barrier moves none"},
        Refused{{"plan", "send_recv", "--np", "1"}, "two ranks"},
        Refused{{"run", "--grace", "-1", "--", "x"}, "-1"},
        Refused{{"run", "--grace", "99999999999", "--", "x"}, "99999999999"}));

TEST(Parse, SaysWhichOfRepeatedOptionsCounts) {
  std::vector<std::string> twice{"bench", "all_reduce", "-n", "5", "--json", "a", "-n", "7"};
  auto notes = parse(twice).notes;
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0], "-n,--iters was given 2 times: 7 counts, the last one");
  // Said once by the command, not once more by every rank that it starts.
  twice.insert(twice.end(), {"--as-rank", "2"});
  EXPECT_TRUE(parse(twice).notes.empty());
  std::vector<std::string> lists{"run",         "--env",       "A=1", "--env", "B=2",
                                 "--no-prefix", "--no-prefix", "--",  "x"};
  EXPECT_TRUE(parse(lists).notes.empty());
}

TEST(Parse, HelpSaysWhatTheBrokerNeeds) {
  auto text = std::get<ShowText>(parsed({"broker", "--help"})).text;
  EXPECT_THAT(text, HasSubstr("One of --job and --socket is required"));
  EXPECT_THAT(text, HasSubstr("tugline broker --socket "));
}

TEST(Values, SizesThatHoldNoWholeCountsAreNoted) {
  auto notes = [](std::vector<std::string> words, int ranks) {
    words.insert(words.begin(), "bench");
    return notes_on_sizes(std::get<BenchOptions>(parsed(words)), ranks);
  };
  EXPECT_THAT(notes({"all_reduce", "-b", "3", "-e", "3"}, 2),
              testing::ElementsAre("sizes are rounded down to whole counts of float: 3 -> 0"));
  EXPECT_THAT(
      notes({"all_gather", "-b", "8", "-e", "64", "-f", "2"}, 3),
      testing::ElementsAre("sizes are rounded down to whole counts of float: 8 -> 0, 16 -> 12, 32 -> 24, "
                           "64 -> 60"));
  EXPECT_THAT(notes({"all_reduce", "-b", "1", "-e", "13", "-i", "2", "-d", "half"}, 2),
              testing::ElementsAre(HasSubstr("5 -> 4, 7 -> 6 and 3 more")));
  EXPECT_TRUE(notes({"all_reduce", "-b", "8", "-e", "1M", "-f", "2"}, 3).empty());
  EXPECT_TRUE(notes({"barrier"}, 3).empty());
}

TEST(Parse, HelpHasExamplesForEverySubcommand) {
  for (std::string name : {"run", "bench", "plan", "doctor", "config", "broker"}) {
    auto text = std::get<ShowText>(parsed({name, "--help"})).text;
    EXPECT_THAT(text, HasSubstr("Examples:"));
    EXPECT_THAT(text, HasSubstr("tugline " + name));
  }
  EXPECT_THAT(std::get<ShowText>(parsed({"--help"})).text, HasSubstr("bench"));
  EXPECT_THAT(std::get<ShowText>(parsed({"--version"})).text, HasSubstr("tugline "));
}

TEST(Values, Sizes) {
  EXPECT_EQ(parse_bytes("0"), 0U);
  EXPECT_EQ(parse_bytes("64K"), 65536U);
  EXPECT_EQ(parse_bytes("64KiB"), 65536U);
  EXPECT_EQ(parse_bytes("16m"), 16U << 20U);
  EXPECT_EQ(parse_bytes("12B"), 12U);
  for (const char* text : {"", "K", "-1", "1.5M", "8KK", "99999999999G", "1 K"})
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
  EXPECT_EQ(human_bytes(65536), "64 KiB");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
}

}  // namespace
}  // namespace tugline::cli

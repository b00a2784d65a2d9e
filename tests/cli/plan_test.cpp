// SPDX-License-Identifier: Apache-2.0
// What `tugline plan` shows: what a communicator would run, and why something else cannot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "base/json.h"
#include "base/settings.h"
#include "core/plan/builders.h"
#include "process.h"
#include "topology/file.h"
#include "topology/machine.h"

namespace tugline::cli {
namespace {

using base::Json;
using testing::HasSubstr;
using testing::Not;

Json json_of(const Ended& ended) {
  return Json::parse(ended.output);
}

TEST(Plan, ShowsCandidatesChoiceAndSteps) {
  auto ended = run_command({"plan", "all_reduce", "--np", "3", "--bytes", "64K"});
  ASSERT_EQ(ended.exit_code, 0) << ended.error;
  EXPECT_THAT(ended.output, HasSubstr("# chosen: "));
  EXPECT_THAT(ended.output, HasSubstr("ring"));
  EXPECT_THAT(ended.output, Not(HasSubstr("rank 0:")));
  EXPECT_LT(std::count(ended.output.begin(), ended.output.end(), '\n'), 20);
  // With all steps, what is short comes last and is the same.
  auto steps = run_command({"plan", "all_reduce", "--np", "3", "--bytes", "64K", "--steps"});
  EXPECT_THAT(steps.output, HasSubstr("rank 2: "));
  auto summary = ended.output.substr(0, ended.output.rfind("; --steps"));
  EXPECT_EQ(steps.output.substr(steps.output.size() - summary.size() - 1), summary + "\n");
  auto document = json_of(run_command({"plan", "all_reduce", "--np", "3", "--bytes", "8", "--json"}));
  int chosen = 0;
  for (const auto& row : document["candidates"]) {
    if (!row["chosen"].as_bool()) continue;
    ++chosen;
    EXPECT_EQ(row["builder"].as_string(), "one_shot_packet");
    EXPECT_GT(row["estimated_us"].as_double(), 0);
    EXPECT_GT(row["simulated_us"].as_double(), 0);
  }
  EXPECT_EQ(chosen, 1);
  EXPECT_FALSE(document["why"].as_string().empty());
}

TEST(Plan, OfManyRanksSaysWhatItDoesAndDoesNotSimulateWhatTakesTooLong) {
  auto long_one = run_command({"plan", "all_reduce", "--np", "256", "--bytes", "1M"});
  EXPECT_EQ(long_one.exit_code, 0) << long_one.error;
  EXPECT_THAT(long_one.output, HasSubstr(" us  not simulated: about "));
  EXPECT_THAT(long_one.output, HasSubstr("-> two_shot"));
  auto priced = run_command({"plan", "all_reduce", "--np", "64", "--bytes", "1M"});
  EXPECT_EQ(priced.exit_code, 0) << priced.error;
  EXPECT_THAT(priced.error, HasSubstr("tugline plan: simulating two_shot, "));
  EXPECT_THAT(priced.output, HasSubstr("chosen: two_shot (estimated "));
}

TEST(Plan, SaysWhereRanksRunAndWhatThatDecides) {
  const auto choice = [](std::vector<std::string> where) {
    std::vector<std::string> words = {"plan", "all_reduce", "--np", "32", "--bytes", "1M", "--json"};
    words.insert(words.end(), where.begin(), where.end());
    Command command(words, {.environment = {{"TUGLINE_DETERMINISTIC", "off"}}});
    return json_of(command.wait());
  };
  const Json grouped = choice({"--cores", "32", "--groups", "2"});
  EXPECT_EQ(grouped["plan"]["name"].as_string(), "hierarchical");
  EXPECT_THAT(grouped["why"].as_string(), HasSubstr("for 32 ranks on 32 cores in 2 groups"));
  EXPECT_NE(choice({"--cores", "32"})["plan"]["name"].as_string(), "hierarchical");

  TemporaryDirectory directory;
  const std::string path = (directory.path() / "two_nodes.json").string();
  topology::save_topology(topology::read_synthetic("numa:2 core:16 pu:1"), path);
  const Json on_file = choice({"--topology", path});
  EXPECT_EQ(on_file["plan"]["name"].as_string(), "hierarchical");
  EXPECT_EQ(on_file["why"].as_string(), grouped["why"].as_string());

  auto missing = run_command({"plan", "all_reduce", "--topology", path + ".not"});
  EXPECT_NE(missing.exit_code, 0);
  EXPECT_THAT(missing.error, HasSubstr(path + ".not"));
  EXPECT_THAT(run_command({"plan", "all_reduce", "--np", "2", "--groups", "3"}).error,
              HasSubstr("3 groups of 2 ranks leave some empty"));
}

TEST(Plan, CountsOneAsOne) {
  auto ended = run_command({"plan", "all_reduce", "--np", "1", "--bytes", "4", "--cores", "1"});
  EXPECT_THAT(ended.output, HasSubstr("over 1 rank, f32 sum, 1 core\n"));
  EXPECT_THAT(ended.output, HasSubstr(": 1 rank, 4 bytes"));
  EXPECT_THAT(run_command({"doctor", "--np", "1"}).output, HasSubstr(" for 1 rank\n"));
}

TEST(Plan, ShowsWhatACommunicatorWouldRun) {
  auto choice = [](std::vector<std::pair<std::string, std::string>> environment) {
    Command command({"plan", "all_reduce", "--np", "4", "--bytes", "1M", "--json"},
                    {.environment = environment});
    return json_of(command.wait())["plan"]["name"].as_string();
  };
  EXPECT_EQ(choice({}), "two_shot");
  EXPECT_EQ(choice({{"TUGLINE_PLAN", "ring"}}), "ring");
  Command cannot({"plan", "all_to_all", "--np", "4"}, {.environment = {{"TUGLINE_PLAN", "ring"}}});
  EXPECT_THAT(cannot.wait().output, HasSubstr("ring, which the setting plan names, cannot serve it"));
}

TEST(Plan, ChecksAFileAndNamesTheWrongStep) {
  TemporaryDirectory directory;
  std::string path = (directory.path() / "plan.json").string();
  auto document = json_of(
      run_command({"plan", "all_reduce", "--np", "2", "--bytes", "1K", "--builder", "ring", "--json"}));
  std::ofstream(path) << document["plan"].dump(2);
  auto right = run_command({"plan", "--check", path});
  EXPECT_EQ(right.exit_code, 0) << right.error;
  EXPECT_THAT(right.output, HasSubstr("is right"));

  const std::string pipe = (directory.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  auto nobody = run_command({"plan", "--check", pipe});
  EXPECT_EQ(nobody.exit_code, 2);
  EXPECT_THAT(nobody.error, HasSubstr("the plan file " + pipe + " is a pipe that nobody writes to"));

  std::string text = document["plan"].dump(2);
  auto at = text.find("\"reduce\"");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 8, "\"copy\"");
  std::ofstream(path) << text;
  auto wrong = run_command({"plan", "--check", path});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_EQ(std::count(wrong.error.begin(), wrong.error.end(), '\n'), 3) << wrong.error;

  auto missing = run_command({"plan", "--check", path + ".not"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.error, HasSubstr(path + ".not"));
}

TEST(Plan, FilesThatNestDeeplyAreRefused) {
  TemporaryDirectory directory;
  const std::string path = (directory.path() / "deep.json").string();
  std::ofstream(path) << std::string(30'000, '[') << std::string(30'000, ']');
  for (const auto& words : {std::vector<std::string>{"plan", "--check", path},
                            {"plan", "all_reduce", "--topology", path},
                            {"bench", "all_reduce", "--plan", path}}) {
    auto ended = run_command(words);
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_THAT(ended.error, HasSubstr("65 deep, at most 64 levels are read")) << words[1];
    EXPECT_EQ(std::count(ended.error.begin(), ended.error.end(), '\n'), 3) << ended.error;
  }
}

TEST(Plan, RefusesWhatNoBuilderMakes) {
  auto unknown = run_command({"plan", "all_to_all", "--builder", "ring"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.error, HasSubstr("ring"));
  auto odd = run_command({"plan", "all_reduce", "--bytes", "7"});
  EXPECT_EQ(odd.exit_code, 2);
  EXPECT_THAT(odd.error, HasSubstr("7 bytes"));
}

TEST(Plan, HasOneForEveryCollectiveAsACommunicatorHas) {
  for (std::string collective :
       {"barrier", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "reduce",
        "gather", "scatter", "all_gather_v", "reduce_scatter_v", "all_to_all_v"}) {
    auto ended = run_command({"plan", collective, "--np", "4", "--op", "avg", "--json"});
    EXPECT_EQ(ended.exit_code, 0) << collective << ended.error;
    EXPECT_EQ(json_of(ended)["plan"]["collective"].as_string(), collective);
  }
  EXPECT_EQ(json_of(run_command({"plan", "barrier", "--json"}))["plan"]["name"].as_string(),
            "one_shot_packet");
}

TEST(Plan, MessagesUseTheScratchOfTheirPair) {
  auto scratch = [](const char* ranks) {
    auto ended =
        run_command({"plan", "send_recv", "--np", ranks, "--bytes", "16M", "--scratch", "32M", "--json"});
    EXPECT_EQ(ended.exit_code, 0) << ended.error;
    return json_of(ended)["plan"]["scratch_bytes"].as_int();
  };
  // 16 MiB over all ordered pairs, at most 512 KiB each: whatever the setting says.
  EXPECT_LE(scratch("2"), 512 << 10);
  EXPECT_LE(scratch("16"), 64 << 10);
  EXPECT_GT(scratch("2"), scratch("16"));
}

TEST(Plan, ScratchIsAsTheSettingOfThatName) {
  auto given = run_command({"plan", "all_reduce", "--np", "4", "--bytes", "16M", "--scratch", "64K"});
  Command set({"plan", "all_reduce", "--np", "4", "--bytes", "16M"},
              {.environment = {{"TUGLINE_SCRATCH_BYTES", "64K"}}});
  EXPECT_EQ(given.output, set.wait().output);
  EXPECT_EQ(given.exit_code, 0) << given.error;
}

TEST(Plan, TheSettingsWordsAreTheBuilders) {
  for (const auto& row : base::settings_table()) {
    if (row.name != "plan") continue;
    EXPECT_EQ(std::vector<std::string_view>(row.words.begin(), row.words.end()), core::builder_names());
  }
}

}  // namespace
}  // namespace tugline::cli

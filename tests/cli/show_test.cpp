// SPDX-License-Identifier: Apache-2.0
// What config, plan and doctor print.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/json.h"
#include "base/settings.h"
#include "process.h"

namespace tugline::cli {
namespace {

using base::Json;
using testing::HasSubstr;

Json json_of(const Ended& ended) {
  return Json::parse(ended.output);
}

TEST(Config, ListsEverySettingWithItsOrigin) {
  Command command({"config", "--json"}, {.environment = {{"TUGLINE_SPIN_US", "7"}}});
  auto ended = command.wait();
  ASSERT_EQ(ended.exit_code, 0) << ended.error;
  auto document = json_of(ended);
  EXPECT_EQ(document["settings"].size(), base::settings_table().size());
  bool found = false;
  for (const auto& row : document["settings"]) {
    EXPECT_FALSE(row["help"].as_string().empty());
    if (row["variable"].as_string() != "TUGLINE_SPIN_US") continue;
    found = true;
    EXPECT_EQ(row["value"].as_string(), "7");
    EXPECT_EQ(row["origin"].as_string(), "environment");
    EXPECT_EQ(row["unit"].as_string(), "us");
  }
  EXPECT_TRUE(found);
  auto text = run_command({"config"});
  EXPECT_THAT(text.output, HasSubstr("TUGLINE_HEARTBEAT_MS"));
}

TEST(Config, NamesAWrongValue) {
  Command command({"config"}, {.environment = {{"TUGLINE_SPIN_US", "soon"}}});
  auto ended = command.wait();
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.error, HasSubstr("TUGLINE_SPIN_US"));
  EXPECT_THAT(ended.error, HasSubstr("soon"));
  EXPECT_EQ(std::count(ended.error.begin(), ended.error.end(), '\n'), 3);
}

TEST(Config, NeverShowsTheToken) {
  std::string token(64, 'a');
  Command command({"config", "--json"}, {.environment = {{"TUGLINE_TOKEN", token}}});
  auto ended = command.wait();
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.output, testing::Not(HasSubstr(token)));
}

TEST(Plan, ShowsCandidatesChoiceAndSteps) {
  auto ended = run_command({"plan", "all_reduce", "--np", "3", "--bytes", "64K"});
  ASSERT_EQ(ended.exit_code, 0) << ended.error;
  EXPECT_THAT(ended.output, HasSubstr("# chosen: "));
  EXPECT_THAT(ended.output, HasSubstr("ring"));
  auto document = json_of(run_command({"plan", "all_reduce", "--np", "3", "--bytes", "8", "--json"}));
  int chosen = 0;
  for (const auto& row : document["candidates"]) {
    if (!row["chosen"].as_bool()) continue;
    ++chosen;
    EXPECT_EQ(row["builder"].as_string(), "one_shot_packet");
    EXPECT_GT(row["predicted_us"].as_double(), 0);
  }
  EXPECT_EQ(chosen, 1);
  EXPECT_FALSE(document["why"].as_string().empty());
}

TEST(Plan, ShowsWhatACommunicatorWouldRun) {
  auto choice = [](std::vector<std::pair<std::string, std::string>> environment) {
    Command command({"plan", "all_reduce", "--np", "4", "--bytes", "1M", "--json"},
                    {.environment = environment});
    return json_of(command.wait())["plan"]["name"].as_string();
  };
  EXPECT_EQ(choice({}), "two_shot");
  EXPECT_EQ(choice({{"TUGLINE_PLAN", "ring"}}), "ring");
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

  std::string text = document["plan"].dump(2);
  auto at = text.find("\"reduce\"");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 8, "\"copy\"");
  std::ofstream(path) << text;
  auto wrong = run_command({"plan", "--check", path});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_EQ(std::count(wrong.error.begin(), wrong.error.end(), '\n'), 3) << wrong.error;

  auto missing = run_command({"plan", "--check", path + ".not"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.error, HasSubstr(path + ".not"));
}

TEST(Plan, RefusesWhatNoBuilderMakes) {
  auto unknown = run_command({"plan", "all_reduce", "--builder", "star"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.error, HasSubstr("ring"));
  auto odd = run_command({"plan", "all_reduce", "--bytes", "7"});
  EXPECT_EQ(odd.exit_code, 1);
  EXPECT_THAT(odd.error, HasSubstr("7 bytes"));
}

Json finding(const Json& document, const std::string& check) {
  for (const auto& row : document["findings"]) {
    if (row["check"].as_string() == check) return row;
  }
  ADD_FAILURE() << "no finding for " << check;
  return Json::object();
}

TEST(Doctor, GivesEvidenceForEveryCheck) {
  auto ended = run_command({"doctor", "--np", "2", "--json"});
  auto document = json_of(ended);
  EXPECT_EQ(ended.exit_code, document["ok"].as_bool() ? 0 : 1);
  for (const char* check : {"settings", "kernel", "sealed memory", "pidfd", "populate", "futex_waitv",
                            "membarrier", "cores", "memory", "descriptors", "memlock", "runtime directory",
                            "/dev/shm", "cross-memory reads", "namespaces"}) {
    auto row = finding(document, check);
    EXPECT_FALSE(row["evidence"].as_string().empty()) << check;
    EXPECT_EQ(row["level"].as_string() == "ok", row["fix"].is_null()) << check;
  }
  EXPECT_THAT(run_command({"doctor"}).output, HasSubstr("runtime directory"));
}

TEST(Doctor, SeriousFindingsEndWithOne) {
  TemporaryDirectory directory;
  std::string file = (directory.path() / "file").string();
  std::ofstream(file) << "in the way\n";
  Command unwritable({"doctor", "--json"}, {.environment = {{"TUGLINE_RUNTIME_DIR", file}}});
  auto ended = unwritable.wait();
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_EQ(finding(json_of(ended), "runtime directory")["level"].as_string(), "serious");

  Command starved({"doctor", "--np", "200", "--json"}, {.descriptors = 64});
  ended = starved.wait();
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_EQ(finding(json_of(ended), "descriptors")["level"].as_string(), "serious");

  Command wrong({"doctor", "--json"}, {.environment = {{"TUGLINE_SPIN_US", "soon"}}});
  ended = wrong.wait();
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_EQ(finding(json_of(ended), "settings")["level"].as_string(), "serious");
}

TEST(Doctor, NotesMoreRanksThanCores) {
  auto document = json_of(run_command({"doctor", "--np", "256", "--json"}));
  EXPECT_EQ(finding(document, "cores")["level"].as_string(), "note");
}

TEST(Doctor, LeavesNothing) {
  Command command({"doctor"});
  command.wait();
  EXPECT_THAT(command.files(), testing::IsEmpty());
  EXPECT_THAT(command.marked(), testing::IsEmpty());
}

}  // namespace
}  // namespace tugline::cli

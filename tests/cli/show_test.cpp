// SPDX-License-Identifier: Apache-2.0
// What config and doctor print.
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

TEST(Config, AWordThatIsNoneOfTheAllowedOnesIsRefusedWhereverItIsRead) {
  for (std::vector<std::string> arguments : {std::vector<std::string>{"config"},
                                             {"plan", "all_reduce"},
                                             {"bench", "barrier", "-n", "1"},
                                             {"bench", "barrier", "-n", "1", "--threads"},
                                             {"run", "--", "true"}}) {
    Command command(arguments, {.environment = {{"TUGLINE_PLAN", "bogus"}}});
    auto ended = command.wait();
    EXPECT_EQ(ended.exit_code, 1) << arguments.front();
    EXPECT_EQ(ended.output, "");
    EXPECT_THAT(ended.error, HasSubstr("TUGLINE_PLAN is \"bogus\""));
    EXPECT_THAT(ended.error, HasSubstr("one_shot_packet, direct, one_shot, two_shot, ring, recursive, tree, "
                                       "hierarchical or point_to_point"));
    EXPECT_EQ(std::count(ended.error.begin(), ended.error.end(), '\n'), 3) << ended.error;
  }
  TemporaryDirectory directory;
  auto file = (directory.path() / "tugline.toml").string();
  std::ofstream(file) << "plan = \"bogus\"\n";
  Command command({"doctor", "--json"}, {.environment = {{"TUGLINE_CONFIG_FILE", file}}});
  auto ended = command.wait();
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.output, HasSubstr("is \\\"bogus\\\""));
  Command old({"config"}, {.environment = {{"TUGLINE_KERNEL", "2.4"}}});
  ended = old.wait();
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.error, HasSubstr("a version from 5.10 on"));
}

TEST(Config, NeverShowsTheToken) {
  std::string token(64, 'a');
  Command command({"config", "--json"}, {.environment = {{"TUGLINE_TOKEN", token}}});
  auto ended = command.wait();
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.output, testing::Not(HasSubstr(token)));
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
                            "membarrier", "cores", "memory", "descriptors", "file size", "memlock",
                            "runtime directory", "/dev/shm", "cross-memory reads", "namespaces"}) {
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

TEST(Doctor, LooksAtARunningJob) {
  const auto ended = run_command({"run", "-n", "1", "--no-prefix", "--", "sh", "-c",
                                  TUGLINE_COMMAND " doctor --job \"$TUGLINE_JOB\" --json && " TUGLINE_COMMAND
                                                  " doctor --job \"$TUGLINE_JOB\" >&2"});
  EXPECT_EQ(ended.exit_code, 0) << ended.error;
  const auto document = json_of(ended);
  EXPECT_FALSE(document["job"].as_string().empty());
  EXPECT_GT(document["broker"]["descriptors"].as_int(), 0);
  EXPECT_EQ(document["members"].size(), 0u) << "its rank has not joined";
  EXPECT_THAT(ended.error, HasSubstr("0 segments hold 0 B (of no limit"));

  const auto absent = run_command({"doctor", "--job", "no-such-job"});
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_THAT(absent.error, HasSubstr("no broker answers at"));
}

TEST(Doctor, LeavesNothing) {
  Command command({"doctor"});
  command.wait();
  EXPECT_THAT(command.files(), testing::IsEmpty());
  EXPECT_THAT(command.marked(), testing::IsEmpty());
}

}  // namespace
}  // namespace tugline::cli

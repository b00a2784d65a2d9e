// SPDX-License-Identifier: Apache-2.0
// Ranks whose settings differ: where they have to be the same, that is an error on every rank, which names
// setting, values and ranks, whoever comes first; elsewhere it changes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "processes.h"

namespace tugline::process {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

struct Different {
  std::string name;
  int ranks;
  std::string variable;
  std::string value;   ///< of the last rank
  std::string shown;   ///< the same in messages
  std::string others;  ///< that of the other ranks
};

void PrintTo(const Different& value, std::ostream* out) {
  *out << value.name;
}

class DifferentSettings : public ::testing::TestWithParam<Different> {
 protected:
  std::unique_ptr<Process> start(int rank, bool different, const std::vector<std::string>& scenario) const {
    auto launch = around_.rank(rank, GetParam().ranks, scenario);
    if (different) launch.environment[GetParam().variable] = GetParam().value;
    return std::make_unique<Process>(launch);
  }
  void expect_error(Process& rank) const {
    const auto& [name, ranks, variable, value, shown, others] = GetParam();
    const auto end = rank.wait(10s);
    EXPECT_EQ(end.exit_code, 1) << end.output << end.error;
    const auto last = end.error.find("tugline: mismatch");
    ASSERT_NE(last, std::string::npos) << end.error;
    const auto at_last = " on rank " + std::to_string(ranks - 1);
    const auto first_line = expect_three_lines(end.error.substr(last), "mismatch");
    EXPECT_THAT(first_line,
                AnyOf(HasSubstr(variable + " is " + shown + at_last + " and " + others + " on rank "),
                      AllOf(HasSubstr(variable + " is " + others + " on rank "),
                            HasSubstr(" and " + shown + at_last))));
    EXPECT_THAT(end.error, HasSubstr("give all ranks the same value"));
  }
  Surroundings around_;
  std::unique_ptr<Process> broker_ = around_.broker();
};

TEST_P(DifferentSettings, AreAnErrorOfAllWhoComeTogether) {
  const int size = GetParam().ranks;
  std::vector<std::unique_ptr<Process>> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(start(rank, rank == size - 1, {"collectives"}));
  for (auto& rank : ranks) expect_error(*rank);
}

TEST_P(DifferentSettings, AreAnErrorOfThoseWhoWait) {
  using Scenario = std::vector<std::string>;
  for (const Scenario& scenario : {Scenario{"start_up"}, Scenario{"start_up", "by agreement"}}) {
    auto first = start(0, false, scenario);
    ASSERT_TRUE(first->has_said("made")) << first->error();
    ASSERT_TRUE(eventually([&] { return first->sleeps(); }));
    auto last = start(GetParam().ranks - 1, true, scenario);
    expect_error(*last);
    expect_error(*first);
  }
}

TEST_P(DifferentSettings, AreAnErrorOfThoseWhoComeLaterOrCallLater) {
  const int size = GetParam().ranks;
  auto first = start(0, false, {"wait_at", "communicator"});
  ASSERT_TRUE(first->has_said("ready")) << first->error();
  for (int rank = size - 1; rank > 0; --rank) expect_error(*start(rank, rank == size - 1, {"collectives"}));
  first->say("go");
  expect_error(*first);
}

TEST_P(DifferentSettings, AreNoneWhereAllRanksHaveThem) {
  const int size = GetParam().ranks;
  std::vector<std::unique_ptr<Process>> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(start(rank, true, {"collectives"}));
  wait_for_all(ranks, 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, DifferentSettings,
    ::testing::Values(Different{"plan", 2, "TUGLINE_PLAN", "one_shot", "one_shot", "unset"},
                      Different{"another_plan", 2, "TUGLINE_PLAN", "ring", "ring", "unset"},
                      Different{"deterministic", 3, "TUGLINE_DETERMINISTIC", "off", "off", "on"},
                      Different{"check", 2, "TUGLINE_CHECK", "off", "off", "on"},
                      Different{"scratch", 2, "TUGLINE_SCRATCH_BYTES", "64K", "64Ki", "2Mi"}),
    [](const auto& each) { return each.param.name; });

TEST(OtherSettings, MayDiffer) {
  const std::vector<std::pair<std::string, std::string>> values{{"TUGLINE_ZERO_COPY", "off"},
                                                                {"TUGLINE_SPIN_US", "0"},
                                                                {"TUGLINE_IMPORT_LIMIT_MAPPINGS", "1"},
                                                                {"TUGLINE_FAIL_AFTER", "20s"},
                                                                {"TUGLINE_KERNEL", "5.10"}};
  Surroundings around;
  const auto broker = around.broker();
  std::vector<std::unique_ptr<Process>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    auto launch = around.rank(rank, 3, {"collectives"});
    if (rank == 1) launch.environment.insert(values.begin(), values.end());
    ranks.push_back(std::make_unique<Process>(launch));
  }
  wait_for_all(ranks, 0);
}

}  // namespace
}  // namespace tugline::process

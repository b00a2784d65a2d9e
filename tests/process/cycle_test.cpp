// SPDX-License-Identifier: Apache-2.0
// Ranks that wait for each other in different communicators: no call of theirs is wrong by itself, so nothing
// ends them at once; but the reports and the time-out say who waits where for whom, and that it is a cycle.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "processes.h"

namespace tugline::process {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Case {
  std::string name;
  std::string rank0;  ///< where it waits
  std::string rank1;
  std::string call0;
  std::string call1;
};

void PrintTo(const Case& value, std::ostream* out) {
  *out << value.name;
}

class CycleTest : public ::testing::TestWithParam<Case> {};

TEST_P(CycleTest, IsNamedWithCommunicatorsCallsAndRanks) {
  const auto& [name, place0, place1, call0, call1] = GetParam();
  Surroundings around;
  const auto broker = around.broker();
  auto ranks =
      around.ranks(2, {"cycle", name}, {}, {{"TUGLINE_FAIL_AFTER", "4s"}, {"TUGLINE_REPORT_AFTER", "1s"}});
  for (auto& rank : ranks) ASSERT_TRUE(rank->has_said("failed")) << rank->error();
  for (auto& rank : ranks) rank->say("go");
  const auto ends = wait_for_all(ranks, 0);
  const std::string at0 = "rank 0 waits in " + place0 + " for rank 1";
  const std::string at1 = "rank 1 waits in " + place1 + " for rank 0";
  const auto last_lines = [](const std::string& text) {
    return text.substr(text.find("tugline: timed_out"));
  };
  for (int rank = 0; rank < 2; ++rank) {
    const auto& text = ends[static_cast<std::size_t>(rank)].error;
    SCOPED_TRACE(text);
    ASSERT_THAT(text, HasSubstr("tugline: timed_out"));
    const auto cycle = rank == 0 ? at0 + ", " + at1 : at1 + ", " + at0;
    // The reports, of which the second at the latest knows of the other rank.
    EXPECT_THAT(
        text.substr(0, text.find("tugline: timed_out")),
        AllOf(HasSubstr("in communicator " + (rank == 0 ? place0 : place1) + " in " +
                        (rank == 0 ? call0 : call1)),
              HasSubstr("; a cycle: " + cycle),
              HasSubstr(rank == 0 ? "rank 1 waits in communicator " + place1 + " for rank 0 in " + call1
                                  : "rank 0 waits in communicator " + place0 + " for rank 1 in " + call0)));
    EXPECT_THAT(text, Not(HasSubstr("no limit"))) << "it has one";
    EXPECT_THAT(last_lines(text), AllOf(HasSubstr("; a cycle: " + cycle), HasSubstr("do: fix_call: ")));
    expect_three_lines(last_lines(text), "timed_out");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Waits, CycleTest,
    ::testing::Values(
        Case{"parent_and_child", "world", "world.1.0", "all_reduce(count 1, f32, sum)",
             "all_reduce(count 1, f32, sum)"},
        Case{"large", "world", "world.1.0", "all_reduce(count 200000", "all_reduce(count 200000"},
        Case{"agreement_of_the_child", "world.1.0", "world", "agree()", "all_reduce(count 1, f32, sum)"},
        Case{"siblings", "world.1.0", "world.2.0", "all_reduce(count 1", "all_reduce(count 1"},
        Case{"messages", "world", "world", "recv(count 4, f32)", "recv(count 4, f32)"},
        Case{"group", "world", "world.1.0", "all_reduce(count 1000", "all_reduce(count 1"}),
    [](const auto& each) { return each.param.name; });

TEST(Wait, ForARankThatComputesSaysThatAndThatThereIsNoLimit) {
  Surroundings around;
  const auto broker = around.broker();
  auto ranks = around.ranks(2, {"wait_at", "loop"}, {}, {{"TUGLINE_REPORT_AFTER", "200ms"}});
  for (auto& rank : ranks) ASSERT_TRUE(rank->has_said("ready"));
  ranks[0]->say("go");
  ASSERT_TRUE(eventually([&] {
    (void)ranks[0]->has_said("nothing", Milliseconds(1));
    return ranks[0]->error().find("is in no long wait of this library") != std::string::npos;
  })) << ranks[0]->error();
  EXPECT_THAT(ranks[0]->error(), AllOf(HasSubstr("in communicator world in barrier(): packet of operation"),
                                       HasSubstr("rank 1 (pid " + std::to_string(ranks[1]->pid()) + ")"),
                                       HasSubstr("TUGLINE_FAIL_AFTER is not set: this wait has no limit"),
                                       Not(HasSubstr("a cycle"))));
  ranks[1]->say("go");
  wait_for_all(ranks, 0);
}

}  // namespace
}  // namespace tugline::process

// SPDX-License-Identifier: Apache-2.0
// Every interleaving of every memory access, with crashes at any point, false deaths and members that learn
// of deaths at different times. Production's own steps run in the model. Two dozen mutants of them show that
// the model sees what it is meant to see.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>

#include "agreement_model/explorer.h"

namespace tugline::core::model {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSlow = true;
#else
constexpr bool kSlow = false;
#endif
constexpr std::uint64_t kStateLimit = 20'000'000;

struct Case {
  const char* name;
  Options options;
  bool quick;  ///< also run against the mutants
};

const Case kCases[] = {
    {"two ranks, five agreements, a failure, a crash",
     {.ranks = 2, .agreements = 5, .crashes = 1, .may_fail = 0b11},
     true},
    {"two ranks, four agreements, one taken for dead",
     {.ranks = 2, .agreements = 4, .zombies = 1, .may_fail = 0b01},
     true},
    {"two ranks, four agreements, giving up", {.ranks = 2, .agreements = 4, .may_abort = 0b11}, true},
    {"three ranks, one agreement, two crashes, failures",
     {.ranks = 3, .agreements = 1, .crashes = 2, .may_fail = 0b111},
     true},
    {"three ranks, two agreements, a crash", {.ranks = 3, .agreements = 2, .crashes = 1}, true},
    {"three ranks, two agreements, two crashes", {.ranks = 3, .agreements = 2, .crashes = 2}, true},
    {"three ranks, two agreements, a crash, failures, the broker lost to two",
     {.ranks = 3, .agreements = 2, .crashes = 1, .may_fail = 0b100, .may_abort = 0b011},
     false},
    {"window of one, three ranks, two agreements, a crash and one taken for dead",
     {.ranks = 3, .agreements = 2, .records = 1, .crashes = 1, .zombies = 1},
     true},
    {"three ranks, two agreements, one taken for dead", {.ranks = 3, .agreements = 2, .zombies = 1}, false},
    {"three ranks, two agreements, a crash and one taken for dead",
     {.ranks = 3, .agreements = 2, .crashes = 1, .zombies = 1},
     false},
    {"three ranks, three agreements, one taken for dead", {.ranks = 3, .agreements = 3, .zombies = 1}, false},
};

class AgreementExplorerTest : public testing::TestWithParam<Case> {};

TEST_P(AgreementExplorerTest, HoldsInEveryState) {
  const auto& options = GetParam().options;
  if (kSlow && options.ranks > 2 && (options.zombies > 0 || options.may_abort != 0))
    GTEST_SKIP() << "too slow under a sanitizer; the plain build runs it";
  if (options.zombies > 0 && options.ranks > 2 && options.agreements > 2 &&
      std::getenv("TUGLINE_EXPLORE_ALL") == nullptr)
    GTEST_SKIP() << "half a minute and 300 MB: set TUGLINE_EXPLORE_ALL=1 to run it";
  const auto result = explore(true_protocol(), options, kStateLimit);
  std::printf("[ explored ] %s: %llu states, %llu transitions\n", GetParam().name,
              static_cast<unsigned long long>(result.states),
              static_cast<unsigned long long>(result.transitions));
  EXPECT_EQ(result.problem, "");
  EXPECT_GT(result.states, 100u);
}

INSTANTIATE_TEST_SUITE_P(All, AgreementExplorerTest, testing::ValuesIn(kCases), [](const auto& tested) {
  std::string name = tested.param.name;
  for (auto& letter : name)
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  return name;
});

TEST(AgreementMutantTest, EveryOneIsRefuted) {
  EXPECT_GE(mutants().size(), 20u);
  for (const auto& mutant : mutants()) {
    std::string problem;
    std::string where;
    std::uint64_t states = 0;
    for (const auto& c : kCases) {
      if (!c.quick) continue;
      const auto result = explore(*mutant.protocol, c.options, kStateLimit);
      states += result.states;
      if (result.problem.empty()) continue;
      problem = result.problem.substr(0, result.problem.find('\n'));
      where = c.name;
      break;
    }
    EXPECT_NE(problem, "") << mutant.name << " was not found out";
    std::printf("[ refuted  ] %s: %s, after %llu states (%s)\n", mutant.name.c_str(), problem.c_str(),
                static_cast<unsigned long long>(states), where.c_str());
  }
}

}  // namespace
}  // namespace tugline::core::model

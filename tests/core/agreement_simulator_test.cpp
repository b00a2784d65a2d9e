// SPDX-License-Identifier: Apache-2.0
// Random schedules of larger worlds than the explorer can exhaust: up to eight ranks, ten agreements, several
// deaths. A seed that fails is one line to replay: TUGLINE_SIMULATOR_SEED=<seed>.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "agreement_model/world.h"

namespace tugline::core::model {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSchedules = 2000;
#else
constexpr std::uint64_t kSchedules = 40'000;
#endif
constexpr std::uint64_t kMaxSteps = 200'000;

struct Run {
  std::string problem;
  std::uint64_t steps = 0;
  std::uint64_t faults = 0;
};

Options random_options(std::mt19937_64& random) {
  auto up_to = [&](int most) { return static_cast<int>(random() % static_cast<std::uint64_t>(most + 1)); };
  Options options;
  options.ranks = 2 + up_to(kMaxRanks - 2);
  options.agreements = 1 + up_to(9);
  options.records = 1 << up_to(2);
  options.crashes = up_to(std::min(3, options.ranks - 1));
  options.zombies = up_to(std::min(2, options.ranks - 1 - options.crashes));
  const auto everybody = (1U << options.ranks) - 1;
  if (up_to(3) == 0) options.may_fail = everybody & static_cast<std::uint32_t>(random());
  if (up_to(7) == 0) options.may_abort = everybody & static_cast<std::uint32_t>(random());
  return options;
}

/// One schedule. Ranks differ in speed, and who runs is kept on for a while, so that some lag far behind.
Run run_schedule(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto options = random_options(random);
  World world(true_protocol(), options);
  auto state = world.initial();
  const auto fault_every = 20 + random() % 400;
  std::vector<Action> actions;
  std::vector<Action> faults;
  Run run;
  int burst_rank = -1;
  while (!world.finished(state)) {
    if (++run.steps > kMaxSteps) {
      run.problem = "somebody hangs";
      return run;
    }
    world.actions(state, actions);
    faults.clear();
    std::erase_if(actions, [&](const Action& action) {
      if (action.kind == Action::Kind::step) return false;
      faults.push_back(action);
      return true;
    });
    if (actions.empty()) {
      run.problem = "nobody can go on";
      return run;
    }
    try {
      if (!faults.empty() && random() % fault_every == 0) {
        ++run.faults;
        world.apply(state, faults[random() % faults.size()]);
        continue;
      }
      auto action = actions[random() % actions.size()];
      if (burst_rank >= 0)
        for (const auto& candidate : actions)
          if (candidate.rank == burst_rank && random() % 2 == 0) action = candidate;
      burst_rank = random() % 16 == 0 ? -1 : action.rank;
      world.apply(state, action, 1 + static_cast<int>(random() % 6));
    } catch (const Violation& violation) {
      run.problem = violation.what();
      return run;
    }
  }
  return run;
}

TEST(AgreementSimulatorTest, HoldsInRandomSchedules) {
  std::uint64_t first = 1;
  std::uint64_t count = kSchedules;
  if (const char* seed = std::getenv("TUGLINE_SIMULATOR_SEED")) {
    first = std::strtoull(seed, nullptr, 10);
    count = 1;
  }
  std::uint64_t steps = 0;
  std::uint64_t faults = 0;
  for (auto seed = first; seed < first + count; ++seed) {
    const auto run = run_schedule(seed);
    ASSERT_EQ(run.problem, "") << "replay with TUGLINE_SIMULATOR_SEED=" << seed;
    steps += run.steps;
    faults += run.faults;
  }
  std::printf("[ simulated ] %llu schedules, %llu steps, %llu deaths, 0 violations\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(steps),
              static_cast<unsigned long long>(faults));
  if (count > 1) {
    EXPECT_GT(faults, count / 2) << "the schedules hardly exercise deaths";
  }
}

}  // namespace
}  // namespace tugline::core::model

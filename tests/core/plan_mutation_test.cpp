// SPDX-License-Identifier: Apache-2.0
// Corrupts one step of right plans. The checker must refuse, or the mutant must still compute the collective
// under every schedule that we try: what it accepts is the claim, the interpreter is the witness.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "core/plan/builders.h"
#include "core/plan/checker.h"
#include "core/plan/print.h"
#include "plan_cases.h"
#include "plan_interpreter.h"

namespace tugline::core::test {
namespace {

enum class Mutation {
  drop_step,
  drop_wait,
  drop_signal,
  swap_operands,
  other_rank,
  shift_offset,
  shrink_bytes,
  grow_bytes,
  change_value,
  swap_steps,
};
constexpr int kMutationCount = 10;
constexpr const char* kMutationNames[] = {"drop_step",    "drop_wait",    "drop_signal",  "swap_operands",
                                          "other_rank",   "shift_offset", "shrink_bytes", "grow_bytes",
                                          "change_value", "swap_steps"};

/// Index of a random step for which `fits` holds; -1 if there is none.
template <class Fits>
std::ptrdiff_t pick(const Program& program, std::mt19937_64& random, Fits fits) {
  std::vector<std::ptrdiff_t> found;
  for (std::size_t i = 0; i < program.size(); ++i) {
    if (fits(program[i])) found.push_back(static_cast<std::ptrdiff_t>(i));
  }
  return found.empty() ? -1 : found[random() % found.size()];
}

bool moves_bytes(const Step& step) {
  return step.kind == StepKind::copy || step.kind == StepKind::reduce;
}

/// Applies the mutation to a random step of a random rank; false when there is no step for it.
bool mutate(Plan& plan, Mutation mutation, std::mt19937_64& random) {
  Program& program = plan.programs[random() % plan.programs.size()][0];
  const auto drop = [&](auto fits) {
    const auto index = pick(program, random, fits);
    if (index >= 0) program.erase(program.begin() + index);
    return index >= 0;
  };
  const auto change = [&](auto fits, auto apply) {
    const auto index = pick(program, random, fits);
    if (index < 0) return false;
    const Step before = program[static_cast<std::size_t>(index)];
    apply(program[static_cast<std::size_t>(index)]);
    return !(program[static_cast<std::size_t>(index)] == before);
  };
  switch (mutation) {
    case Mutation::drop_step:
      return drop([](const Step&) { return true; });
    case Mutation::drop_wait:
      return drop([](const Step& step) { return step.kind == StepKind::wait; });
    case Mutation::drop_signal:
      return drop([](const Step& step) { return step.kind == StepKind::signal; });
    case Mutation::swap_operands:
      return change([](const Step& step) { return step.kind == StepKind::reduce; },
                    [](Step& step) { std::swap(step.source, step.second); });
    case Mutation::other_rank:
      return change(
          [](const Step& step) { return step.kind != StepKind::scale && step.kind != StepKind::put_packet; },
          [&](Step& step) {
            const auto other = static_cast<std::int32_t>(random() % static_cast<std::size_t>(plan.ranks));
            if (moves_bytes(step)) {
              step.source.rank = other;
            } else {
              step.peer = other;
            }
          });
    case Mutation::shift_offset:
      return change(moves_bytes, [&](Step& step) {
        Place* places[] = {&step.destination, &step.source, &step.second};
        Place& place = *places[random() % (step.kind == StepKind::reduce ? 3 : 2)];
        place.offset += (random() % 2 == 0 ? 1 : random() % 16) * plan.element_bytes;
      });
    case Mutation::shrink_bytes:
      return change(moves_bytes, [&](Step& step) { step.bytes -= plan.element_bytes; });
    case Mutation::grow_bytes:
      return change(moves_bytes, [&](Step& step) { step.bytes += plan.element_bytes; });
    case Mutation::change_value:
      return change(
          [](const Step& step) { return step.kind == StepKind::signal || step.kind == StepKind::wait; },
          [&](Step& step) { step.value += random() % 2 == 0 ? 1u : ~0u; });
    case Mutation::swap_steps: {
      if (program.size() < 2) return false;
      const std::size_t index = random() % (program.size() - 1);
      if (program[index] == program[index + 1]) return false;
      std::swap(program[index], program[index + 1]);
      return true;
    }
  }
  return false;
}

/// Empty when the plan computes its collective under a few hostile schedules.
std::string witness_against(const Plan& plan) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const RunResult run = interpret(plan, seed);
    if (!run.ended) return "deadlock";
    if (!run.in_bounds) return "out of bounds";
    for (std::int32_t rank = 0; rank < plan.ranks; ++rank) {
      if (run.outputs[static_cast<std::size_t>(rank)] != expected_output(plan, rank)) {
        return "wrong result at rank " + std::to_string(rank);
      }
    }
  }
  return {};
}

TEST(PlanMutation, TheCheckerRefusesWhatIsBroken) {
  std::mt19937_64 random(20240);
  std::map<Mutation, int> tried;
  std::map<Mutation, int> refused;
  int seen_to_fail = 0;
  std::vector<std::pair<std::string_view, PlanRequest>> cases;
  for_each_case({2, 3, 4, 5}, {7, 300}, [&](auto name, const PlanRequest& request) {
    if (request.scratch_bytes == (4 << 10)) cases.emplace_back(name, request);
  });
  for_each_case({3}, {1100},
                [&](auto name, const PlanRequest& request) { cases.emplace_back(name, request); });

  for (std::size_t i = 0; i < cases.size(); i += kStride) {
    const auto& [name, request] = cases[i];
    const Plan good = build(name, request);
    for (int kind = 0; kind < kMutationCount; ++kind) {
      for (int repeat = 0; repeat < 3; ++repeat) {
        Plan plan = good;
        const auto mutation = static_cast<Mutation>(kind);
        if (!mutate(plan, mutation, random)) continue;
        ++tried[mutation];
        if (check(plan).ok) {
          ASSERT_EQ(witness_against(plan), "")
              << "accepted " << kMutationNames[kind] << " in " << describe(name, request) << "\n"
              << print(plan);
        } else {
          ++refused[mutation];
          if (repeat == 0 && check_structure(plan).ok && !witness_against(plan).empty()) ++seen_to_fail;
        }
      }
    }
  }

  int all_tried = 0;
  int all_refused = 0;
  for (const auto& [mutation, count] : tried) {
    all_tried += count;
    all_refused += refused[mutation];
    RecordProperty(kMutationNames[static_cast<int>(mutation)],
                   std::to_string(refused[mutation]) + " of " + std::to_string(count));
    std::printf("%-14s refused %4d of %4d\n", kMutationNames[static_cast<int>(mutation)], refused[mutation],
                count);
  }
  std::printf("refused %d of %d, %d of them seen to fail\n", all_refused, all_tried, seen_to_fail);
  ASSERT_EQ(tried.size(), static_cast<std::size_t>(kMutationCount));
  // What is left is harmless: waits that another one implies, signals that a later one replaces, steps that
  // commute, bytes behind the end of a message. A wrong operand, place or size is never harmless.
  EXPECT_GT(all_refused, all_tried * 80 / 100);
  for (auto mutation : {Mutation::swap_operands, Mutation::shift_offset, Mutation::shrink_bytes}) {
    EXPECT_EQ(refused[mutation], tried[mutation]) << kMutationNames[static_cast<int>(mutation)];
  }
  EXPECT_GT(seen_to_fail, 100);
}

}  // namespace
}  // namespace tugline::core::test

// SPDX-License-Identifier: Apache-2.0
// Runs a plan on real bytes, one step at a time in a seeded random order of ranks and channels. It is no
// executor: it shows what a plan computes under one schedule, so that the checker can be held against it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/plan/plan.h"

namespace tugline::core::test {

/// Inputs of all ranks before, outputs of all ranks after the run. Elements are combined by a function that
/// is neither commutative nor associative, so that the order of the contributions shows in the result.
struct RunResult {
  bool ended = true;      ///< false: deadlock
  bool in_bounds = true;  ///< false: some access left its buffer; the run stopped there
  std::vector<std::vector<std::uint8_t>> outputs;
};

/// Input byte `index` of `rank`.
std::uint8_t input_byte(std::int32_t rank, std::uint64_t index);

RunResult interpret(const Plan& plan, std::uint64_t seed);
/// What the collective must leave at `rank`, contributions combined in the plan's order class.
std::vector<std::uint8_t> expected_output(const Plan& plan, std::int32_t rank);

}  // namespace tugline::core::test

// SPDX-License-Identifier: Apache-2.0
// The checker runs a plan symbolically and proves, or refutes with a counter-example, that
//   - every element of every output holds exactly the contributions it must, each exactly once,
//   - no two conflicting accesses to the same bytes are unordered (no slot is overwritten before it is read),
//   - all programs end (no deadlock), flags only grow, every access is in bounds,
//   - in a direct plan nobody ends while others are at its buffers,
//   - all ranks combine every element in the same order (bit-identical results), and that order is the
//     class the plan claims.
#pragma once

#include <string>

#include "core/plan/plan.h"

namespace tugline::core {

struct CheckResult {
  bool ok = true;
  std::string
      problem;  ///< first problem found: rank, channel, step index, bytes, and what would have been right
};

/// Checks every step alone: kinds, ranks, flags, bounds, alignment. An executor may run a plan that passes
/// without leaving its buffers or its flags; it may hang or compute nonsense.
CheckResult check_structure(const Plan& plan);

/// Checks `plan`. Cost grows with steps times boundaries; meant for tests, tools and hand-written plans.
CheckResult check(const Plan& plan);

}  // namespace tugline::core

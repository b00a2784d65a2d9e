// SPDX-License-Identifier: Apache-2.0
// Plan files from anybody: parsing and checking never crash, what is written reads back as it was, and a plan
// that the checker accepts computes its collective under every schedule tried.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "../core/plan_interpreter.h"
#include "core/plan/checker.h"
#include "core/plan/cost.h"
#include "core/plan/print.h"
#include "tugline/error.h"

namespace {

using namespace tugline::core;

// Beyond these a run shows nothing new and takes long.
constexpr std::int32_t kMostRanks = 8;
constexpr std::uint64_t kMostInterpretedBytes = 1 << 14;

void demand(bool holds, const char* what, const Plan& plan) {
  if (holds) return;
  std::fprintf(stderr, "%s\n%s", what, to_json(plan).c_str());
  std::abort();
}

void run_accepted(const Plan& plan) {
  if (plan.bytes > kMostInterpretedBytes || plan.scratch_bytes > kMostInterpretedBytes) return;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const auto run = test::interpret(plan, seed);
    demand(run.ended && run.in_bounds, "accepted, but does not end", plan);
    if (plan.order == ReductionOrder::other) continue;
    for (std::int32_t rank = 0; rank < plan.ranks; ++rank) {
      if (plan.collective == Collective::send_recv && rank == 0) continue;
      demand(run.outputs[static_cast<std::size_t>(rank)] == test::expected_output(plan, rank),
             "accepted, but computes something else", plan);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Plan plan;
  try {
    plan = plan_from_json({reinterpret_cast<const char*>(data), size});
  } catch (const tugline::Error&) {
    return 0;
  }
  const std::string text = to_json(plan);
  demand(to_json(plan_from_json(text)) == text, "does not read back as written", plan);
  print(plan);
  if (plan.ranks > kMostRanks) return 0;
  const bool whole = check_structure(plan).ok;
  const CheckResult result = check(plan);
  demand(whole || !result.ok, "accepted without structure", plan);
  if (whole) predict_seconds(plan, {});
  if (result.ok) run_accepted(plan);
  return 0;
}

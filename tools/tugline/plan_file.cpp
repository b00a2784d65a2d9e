// SPDX-License-Identifier: Apache-2.0
#include "plan_file.h"

#include <fmt/format.h>

#include "base/settings.h"
#include "comm/layout.h"
#include "core/plan/checker.h"
#include "core/plan/print.h"
#include "files.h"
#include "tugline/error.h"

namespace tugline::cli {

core::Plan read_plan(const std::string& path) {
  auto text = read_file(path, "the plan file");
  try {
    return core::plan_from_json(text);
  } catch (const Error& error) {
    throw Error(error.code(), error.remedy(), fmt::format("{}: {}", path, error.what_failed()),
                error.what_to_do(), {.operation = "reading a plan"}, error.location());
  }
}

Objection objection_to(const core::Plan& plan, Proof proof) {
  const auto result = proof == Proof::whole ? core::check(plan) : core::check_structure(plan);
  if (!result.ok) return {"is wrong: " + result.problem, "correct what is named, see docs/plans.md"};
  const auto ranks = static_cast<std::uint64_t>(plan.ranks);
  const auto room = comm::rank_scratch_bytes(ranks, base::settings().scratch_bytes) / comm::kHalves;
  if (plan.scratch_bytes <= room) return {};
  const auto most = comm::kScratchLimit / ranks / comm::kHalves;
  auto problem =
      fmt::format("needs {} bytes of scratch per rank, an operation has {}", plan.scratch_bytes, room);
  if (plan.scratch_bytes > most)
    return {problem,
            fmt::format("write one that needs at most {}: more is not to be had over {} ranks", most, ranks)};
  return {problem,
          fmt::format("set TUGLINE_SCRATCH_BYTES to {} or more", plan.scratch_bytes * comm::kHalves)};
}

void require_right(const core::Plan& plan, Proof proof, const std::string& path) {
  auto objection = objection_to(plan, proof);
  if (objection.problem.empty()) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("plan \"{}\" {}", plan.name, objection.problem),
              objection.remedy, {.operation = path});
}

}  // namespace tugline::cli

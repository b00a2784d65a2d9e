// SPDX-License-Identifier: Apache-2.0
#include "comm/forced_plan.h"

#include <fmt/format.h>

#include "comm/state.h"
#include "core/plan/checker.h"

namespace tugline::comm {

void force_plan(Communicator& communicator, core::Plan plan, PlanTrust trust) {
  if (core::has_blocks(plan.collective))
    throw Error(
        ErrorCode::unsupported,
        fmt::format("plan {} is of {}: a plan from outside has sizes of its own, and the callers others",
                    plan.name, core::name_of(plan.collective)),
        "prove it by tugline plan --check, and name a builder by TUGLINE_PLAN to run one");
  if (plan.collective == core::Collective::send_recv)
    throw Error(
        ErrorCode::unsupported,
        fmt::format("plan {} is of send_recv: messages have one way to go, see comm/channel.h", plan.name),
        "prove it by tugline plan --check; only plans of collectives can be run");
  const auto result = trust == PlanTrust::checked ? core::check(plan) : core::check_structure(plan);
  if (!result.ok)
    throw Error(ErrorCode::invalid_argument, fmt::format("plan {}: {}", plan.name, result.problem),
                trust == PlanTrust::checked ? "mend the plan, or run it unchecked to see what it does"
                                            : "mend the plan");
  const auto available = communicator.state().current()->bank.layout().scratch_bytes / kHalves;
  if (plan.scratch_bytes > available)
    throw Error(ErrorCode::unsupported,
                fmt::format("plan {} needs {} bytes of scratch per rank, an operation has {}", plan.name,
                            plan.scratch_bytes, available),
                "raise TUGLINE_SCRATCH_BYTES to at least twice the plan's need");
  communicator.state().force_plan(std::make_shared<core::Plan>(std::move(plan)));
}

void unforce_plan(Communicator& communicator) {
  communicator.state().force_plan(nullptr);
}

}  // namespace tugline::comm

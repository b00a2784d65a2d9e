// SPDX-License-Identifier: Apache-2.0
// What one step takes its rank: the part that the simulation and the estimate of a plan's price share.
#pragma once

#include "core/plan/cost.h"
#include "core/plan/plan.h"

namespace tugline::core {

/// Seconds of a step of rank `self` of `ranks`, without what it waits for.
double step_seconds(const Step& step, std::int32_t self, std::int32_t ranks, const CostModel& model);

}  // namespace tugline::core

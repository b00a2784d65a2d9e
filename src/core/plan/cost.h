// SPDX-License-Identifier: Apache-2.0
// Prices plans: the time of the slowest rank on a machine described by a few measured numbers. A simulation
// prices a plan that is there; an estimate, which is what communicators choose by, needs none.
#pragma once

#include <vector>

#include "core/plan/builders.h"
#include "core/plan/plan.h"

namespace tugline::core {

/// Measured (or assumed) properties of the link between ranks and of a rank's own memory.
struct CostModel {
  double signal_seconds = 80e-9;          ///< raise a flag until the waiting peer sees it
  double packet_seconds = 90e-9;          ///< one packet line, write until seen
  double step_seconds = 5e-9;             ///< executor's overhead per step
  double remote_latency_seconds = 60e-9;  ///< first line of another rank's scratch, per step that touches it
  double local_bytes_per_second = 12e9;   ///< copy within a rank's own memory
  double remote_bytes_per_second = 8e9;   ///< read of another rank's memory, write where others read last
  double reduce_bytes_per_second = 8e9;   ///< element-wise combination, destination bytes
  double switch_seconds = 1.5e-6;         ///< a core leaves a waiting rank for another one
  double far_signal_seconds = 250e-9;     ///< as above, from one group to another
  double far_latency_seconds = 200e-9;
  double far_bytes_per_second = 5e9;
  int cores = 1;                          ///< cores for all ranks together; fewer than ranks: they take turns
  std::vector<std::int32_t> groups = {};  ///< as PlanRequest::groups; empty: all ranks are near each other

  bool is_far(std::int32_t from, std::int32_t to) const noexcept {
    return !groups.empty() && groups[static_cast<std::size_t>(from)] != groups[static_cast<std::size_t>(to)];
  }
};

/// Seconds of the builder's plan for the request, from the programs of a few of its ranks and the number of
/// times that a rank waits for others: quick enough for a first call, and the same on every rank that asks
/// with the same numbers, whatever request.only_rank and in_place are. Requires can_build(builder, request),
/// and sizes that all ranks know: no all_to_all_v of one rank.
double estimate_seconds(std::string_view builder, const PlanRequest& request, const CostModel& model);

/// Predicted time of the plan in seconds, by simulating the programs of all ranks against the model. The same
/// on every rank that asks with the same numbers. Infinite for a plan that does not end (check() says why).
double predict_seconds(const Plan& plan, const CostModel& model);

}  // namespace tugline::core

// SPDX-License-Identifier: Apache-2.0
// Prices a plan: the time of its slowest rank on a machine described by a few measured numbers.
#pragma once

#include "core/plan/plan.h"

namespace tugline::core {

/// Measured (or assumed) properties of the link between ranks and of a rank's own memory.
struct CostModel {
  double signal_seconds = 80e-9;          ///< raise a flag until the waiting peer sees it
  double packet_seconds = 90e-9;          ///< one packet line, write until seen
  double step_seconds = 5e-9;             ///< executor's overhead per step
  double remote_latency_seconds = 60e-9;  ///< first line of another rank's scratch, per step that touches it
  double local_bytes_per_second = 12e9;   ///< copy within a rank's own memory
  double remote_bytes_per_second = 8e9;   ///< read or write of another rank's scratch
  double reduce_bytes_per_second = 8e9;   ///< element-wise combination, destination bytes
  double switch_seconds = 1.5e-6;         ///< a core leaves a waiting rank for another one
  int cores = 1;                          ///< cores for all ranks together; fewer than ranks: they take turns
};

/// Predicted time of the plan in seconds, by simulating the programs of all ranks against the model. The same
/// on every rank that asks with the same numbers. Infinite for a plan that does not end (check() says why).
double predict_seconds(const Plan& plan, const CostModel& model);

}  // namespace tugline::core

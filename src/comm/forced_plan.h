// SPDX-License-Identifier: Apache-2.0
// Runs a given plan instead of the selected one: `tugline bench --plan FILE`.
#pragma once

#include "core/plan/plan.h"
#include "tugline/communicator.h"

namespace tugline::comm {

enum class PlanTrust : std::uint8_t {
  checked,    ///< refuse what the checker cannot prove
  unchecked,  ///< check only that the plan stays within its buffers; it may hang or compute nonsense
};

/// From now on calls of `communicator` with the plan's collective, number of ranks, bytes, root and form (in
/// place or not) run it; all ranks must force the same one. Throws Error{invalid_argument} that says what is
/// wrong with it, Error{unsupported} when it needs more scratch than the communicator has, is of a
/// message, or has blocks of different sizes.
void force_plan(Communicator& communicator, core::Plan plan, PlanTrust trust);
/// Back to the selection.
void unforce_plan(Communicator& communicator);

}  // namespace tugline::comm

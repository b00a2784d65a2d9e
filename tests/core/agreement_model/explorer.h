// SPDX-License-Identifier: Apache-2.0
// Visits every state that a small world can reach.
#pragma once

#include <cstdint>
#include <string>

#include "world.h"

namespace tugline::core::model {

struct Exploration {
  std::uint64_t states = 0;
  std::uint64_t transitions = 0;
  std::string problem;  ///< empty: every promise holds in every state, and from every state all can finish
};

/// Explores depth first. Stops at the first violation, which is described with the actions that led to it. At
/// the end checks that from every state the members that still run can finish without another fault: nobody
/// hangs. More than `limit` states is a problem too.
Exploration explore(const Protocol& protocol, const Options& options, std::uint64_t limit);

}  // namespace tugline::core::model

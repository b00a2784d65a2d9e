// SPDX-License-Identifier: Apache-2.0
// Which plan serves a request. A pure function of the request and of what all ranks know alike of where they
// run, so that all choose alike, and the same every time that they run so.
#pragma once

#include <string>
#include <string_view>

#include "core/plan/builders.h"
#include "core/plan/cost.h"

namespace tugline::comm {

struct Choice {
  std::string_view builder;
  std::string reason;  ///< one sentence, for `tugline plan`
};

struct ChoiceRules {
  std::string_view forced = {};  ///< the setting `plan`: wins where it can serve the request
  /// The setting `deterministic`: what is reduced is combined in rank order, whatever the size, the cores and
  /// the groups. Else any order, which then follows from these.
  bool rank_order = true;
};
ChoiceRules rules_of_settings();

/// True when the choice asks where the ranks run: `machine` below.
bool depends_on_machine(const core::PlanRequest& request, const ChoiceRules& rules) noexcept;

/// Chooses among the builders that can serve `request`. `machine` says where the ranks run; request.groups
/// are its. Throws Error{invalid_argument} for a request that makes no sense, Error{unsupported} with what to
/// do when there is not scratch enough for any builder.
Choice choose_builder(const core::PlanRequest& request, const core::CostModel& machine,
                      const ChoiceRules& rules = {});

}  // namespace tugline::comm

// SPDX-License-Identifier: Apache-2.0
// Which plan serves a request. A pure function of the request, so that all ranks choose alike.
#pragma once

#include <string>
#include <string_view>

#include "core/plan/builders.h"

namespace tugline::comm {

struct Choice {
  std::string_view builder;
  std::string reason;  ///< one sentence, for `tugline plan`
};

/// Chooses among the builders that can serve `request`; `forced` (the setting `plan`) wins where it can serve
/// it. Throws Error{invalid_argument} for a request that makes no sense, Error{unsupported} with what to do
/// when there is not scratch enough for any builder.
Choice choose_builder(const core::PlanRequest& request, std::string_view forced = {});

}  // namespace tugline::comm

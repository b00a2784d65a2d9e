// SPDX-License-Identifier: Apache-2.0
// Human-readable plans for `tugline plan`, and the JSON form of hand-written plans.
#pragma once

#include <string>
#include <string_view>

#include "core/plan/plan.h"

namespace tugline::core {

/// "ring all_reduce: 4 ranks, 1024 bytes, ...": what the plan is, without its steps.
std::string print_header(const Plan& plan);
/// The header with the number of steps, then one line per step, grouped by rank and channel.
std::string print(const Plan& plan);
/// One step of rank `self`, as "reduce output[0, 64) <- scratch@1[0, 64) op input[0, 64)". A space without
/// "@rank" is the rank's own.
std::string print(const Step& step, std::int32_t self);
std::string print(const Place& place, std::int32_t self);

/// JSON text, the format of `tugline bench --plan FILE` (documented in docs/plans.md).
std::string to_json(const Plan& plan);
/// Parses the format of to_json. Throws Error{invalid_argument} that names the field, step and value. The
/// plan is not checked: an executor needs check_structure() at least, its results need check().
Plan plan_from_json(std::string_view text);

}  // namespace tugline::core

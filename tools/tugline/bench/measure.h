// SPDX-License-Identifier: Apache-2.0
// One rank's part of a bench.
#pragma once

#include <optional>

#include "bench/report.h"
#include "core/plan/plan.h"
#include "tugline/job.h"

namespace tugline::cli {

/// Runs every line of the bench, or the one of `plan`, which has been proved or is not to be; all ranks of
/// the job call it alike. `report` is given at rank 0 only. Returns the number of wrong elements over all
/// ranks. Throws tugline::Error when an operation fails.
std::uint64_t measure(const BenchOptions& options, Job& job, const std::optional<core::Plan>& plan,
                      Report* report);

/// The plan in options.plan_file; none without one. Throws Error{invalid_argument} when it is no plan or,
/// unless options.plan_check says otherwise, a wrong one; UsageError when it does not fit the words of the
/// command line: another collective, type width, operator or number of ranks than asked for.
std::optional<core::Plan> plan_of(const BenchOptions& options);

/// Operations between two time stamps for calls of so many bytes.
int batch_of(const BenchOptions& options, std::uint64_t bytes) noexcept;

}  // namespace tugline::cli

// SPDX-License-Identifier: Apache-2.0
// One rank's part of a bench.
#pragma once

#include "bench/report.h"
#include "tugline/job.h"

namespace tugline::cli {

/// Runs every line of the bench; all ranks of the job call it alike. `report` is given at rank 0 only.
/// Returns the number of wrong elements over all ranks. Throws tugline::Error when an operation fails.
std::uint64_t measure(const BenchOptions& options, Job& job, Report* report);

/// The plan in options.plan_file; none without one. Throws Error{invalid_argument} when it is no plan, or one
/// that does not fit the bench: another collective, type width, operator or number of ranks than asked for.
std::optional<core::Plan> plan_of(const BenchOptions& options);

/// Operations between two time stamps for calls of so many bytes.
int batch_of(const BenchOptions& options, std::uint64_t bytes) noexcept;

}  // namespace tugline::cli

// SPDX-License-Identifier: Apache-2.0
// One function per subcommand. Each returns the exit code 0 or 1 and throws tugline::Error.
#pragma once

#include "options.h"

namespace tugline::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

int run(const RunOptions& options);
int bench(const BenchOptions& options);
int plan(const PlanOptions& options);
int doctor(const DoctorOptions& options);
int config(const ConfigOptions& options);
int broker(const BrokerCommandOptions& options);

}  // namespace tugline::cli

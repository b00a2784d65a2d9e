// SPDX-License-Identifier: Apache-2.0
// What a bench measures.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "options.h"

namespace tugline::cli {

/// One buffer form (out of place or in place) of one line. Times in microseconds per operation.
struct Measurement {
  double mean_us = 0;  ///< over operations and ranks
  double p50_us = 0;   ///< of the slowest rank, over time stamps
  double p99_us = 0;
  double min_us = 0;
  double max_us = 0;
  double algorithm_gbps = 0;  ///< 10^9 bytes per second
  double bus_gbps = 0;
  std::optional<std::uint64_t> wrong;  ///< elements, over all ranks; none: not checked
};

struct Line {
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  int batch = 1;  ///< operations per time stamp
  std::optional<Measurement> out_of_place;
  std::optional<Measurement> in_place;
};

/// The surroundings of a measurement.
struct Setting {
  int ranks = 1;
  int cores = 1;
  std::string device;  ///< "host:0 AMD EPYC ..."
};

}  // namespace tugline::cli

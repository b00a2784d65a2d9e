// SPDX-License-Identifier: Apache-2.0
// Results as nccl-tests' table and as JSON.
#pragma once

#include <string>
#include <vector>

#include "bench/results.h"

namespace tugline::cli {

/// Prints the table to standard output line by line and keeps the lines for the file. One per bench.
class Report {
 public:
  Report(const BenchOptions& options, Setting setting);
  /// Prints the header; `notes` are what the reader of the table has to know beside it.
  void begin(const std::vector<std::string>& notes) const;
  void add(const Line& line);
  /// Prints the summary and writes the JSON file, if one is wanted.
  void finish();
  std::uint64_t wrong() const noexcept { return wrong_; }

 private:
  const BenchOptions& options_;
  Setting setting_;
  std::vector<Line> lines_;
  std::uint64_t wrong_ = 0;
};

/// The columns "time algbw busbw #wrong".
std::string columns_of(const std::optional<Measurement>& measurement);

}  // namespace tugline::cli

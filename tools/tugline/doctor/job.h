// SPDX-License-Identifier: Apache-2.0
// `tugline doctor --job`: who holds how much memory and how many descriptors in a running job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "broker/observer.h"

namespace tugline::cli {

struct ProcessDescriptors {
  std::uint64_t open = 0;
  std::uint64_t limit = 0;  ///< soft limit of open files
};

struct JobView {
  broker::JobAccount account;
  /// By position in account.members; none where the process cannot be seen from here.
  std::vector<std::optional<ProcessDescriptors>> descriptors;
};

/// Asks the broker of the running job. Throws Error{not_found} when there is none, and what Observer throws.
JobView look_at_job(const std::string& job);
std::string text_of(const JobView& view);
std::string json_of(const JobView& view);

}  // namespace tugline::cli

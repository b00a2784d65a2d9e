// SPDX-License-Identifier: Apache-2.0
// What of this machine the tools look at themselves.
#pragma once

#include <sys/resource.h>

#include <vector>

namespace tugline::cli {

/// Cores this process may run on, ascending; never empty.
std::vector<int> allowed_cpus();
/// True when both descriptors are the same file, pipe or terminal.
bool same_file(int left, int right) noexcept;
/// True when the descriptor is a terminal and NO_COLOR is unset or empty.
bool use_colour(int descriptor) noexcept;

/// Raises this process's limit of open descriptors, if need be, so that `more` can be opened.
class DescriptorRoom {
 public:
  /// Throws Error{out_of_memory} with the limit and the need when the hard limit is too low.
  explicit DescriptorRoom(int more);
  /// The limit as it was: what children should get.
  const rlimit& before() const noexcept { return before_; }

 private:
  rlimit before_{};
};

}  // namespace tugline::cli

// SPDX-License-Identifier: Apache-2.0
// What of this machine the tools look at themselves.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <vector>

namespace tugline::cli {

/// Cores this process may run on, ascending; never empty.
std::vector<int> allowed_cpus();
/// True when both descriptors are the same file, pipe or terminal.
bool same_file(int left, int right) noexcept;
/// True when the descriptor is a terminal and NO_COLOR is unset or empty.
bool use_colour(int descriptor) noexcept;

/// How many descriptors a process of a job may have to open: this one has its own and two pipes a rank, the
/// broker a socket and a pidfd a rank, segments, and room for members to come.
rlim_t descriptors_needed(int ranks) noexcept;
/// Throws Error{out_of_memory} with the limit and the need when the hard limit is too low for a job.
void require_descriptors(int ranks);

/// The largest piece of shared memory of a job: the first communicator's of all ranks. Limits on the size of
/// files (ulimit -f) hold for it.
std::uint64_t file_bytes_needed(int ranks);
/// Throws Error{out_of_memory} with the limit and the need when this process's limit is lower, which its
/// children inherit.
void require_file_size(int ranks);

/// Raises this process's limit of open descriptors, if need be, to what a job needs.
class DescriptorRoom {
 public:
  /// Throws as require_descriptors() does.
  explicit DescriptorRoom(int ranks);
  /// The limit as it was: what children should get.
  const rlimit& before() const noexcept { return before_; }

 private:
  rlimit before_{};
};

}  // namespace tugline::cli

// SPDX-License-Identifier: Apache-2.0
// Starting a broker's process: exec of the installed `tugline broker --job-scoped`, in a session of its own,
// with null stdio (standard error leads to the starter until it serves), the root as working directory,
// default signals, affinity and umask, an environment of its own, and no descriptor of ours but the two named
// here.
#pragma once

#include <cstdint>
#include <string>

#include "base/unique_fd.h"
#include "broker/place.h"

namespace tugline::broker {

/// Where a job-scoped broker finds what it was handed.
inline constexpr int kLockedDirectoryDescriptor = 3;
inline constexpr int kOwnerDescriptor = 4;   ///< pidfd of `tugline run`; /dev/null when there is none
inline constexpr int kReportDescriptor = 5;  ///< a StartReport's socket

struct SpawnRequest {
  Place place;
  std::string job;
  std::string token_hex;            ///< empty: the broker makes one
  base::UniqueFd locked_directory;  ///< see lock_directory(); the lock passes to the broker
  base::UniqueFd owner;             ///< the broker stays while this process lives
};

/// The program to execute: settings().broker_bin, else `tugline` beside this library or program (in ., ../bin
/// of its folder), else in PATH. Throws Error{not_found}.
std::string find_broker_program();

/// Returns once the broker accepts. Throws the error that it ended with, Error{not_found},
/// Error{out_of_memory}, Error{broker_lost}, Error{timed_out}, Error{system}.
void spawn_broker(SpawnRequest request, std::uint64_t deadline_ns);

}  // namespace tugline::broker

// SPDX-License-Identifier: Apache-2.0
// What `tugline doctor` finds: one line of evidence and, where something is wrong, what to do.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tugline::cli {

enum class Level : std::uint8_t {
  ok,
  note,     ///< tugline works, with less speed or fewer features
  serious,  ///< jobs will fail
};

struct Finding {
  std::string check;
  Level level = Level::ok;
  std::string evidence;  ///< what was seen or tried, with values
  std::string fix;       ///< empty when the level is ok
};

/// Limits and sizes of this process's surroundings.
std::vector<Finding> check_limits(int ranks);
/// The kernel and what of it is tried out.
std::vector<Finding> check_kernel();
/// Where ranks and their memory are placed.
std::vector<Finding> check_placement(int ranks);
/// The GPUs, each opened, or why none is used.
std::vector<Finding> check_gpus();
/// Where sockets go, and how processes see each other.
std::vector<Finding> check_places();

/// Runs `probe` in a forked child, so that it may change anything, and gives its result: 0, an errno, or -1
/// when a signal ended it. The probe makes system calls only and allocates nothing.
int try_in_child(const std::function<int()>& probe);

}  // namespace tugline::cli

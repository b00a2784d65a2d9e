// SPDX-License-Identifier: Apache-2.0
// Processes below this one, whoever their parents were: orphans of the job come to the subreaper.
#pragma once

#include <sys/types.h>

#include <vector>

namespace tugline::cli {

/// All living descendants of this process except `spared` and what is below it. Throws Error{system} when
/// /proc cannot be read.
std::vector<pid_t> descendants(pid_t spared);

}  // namespace tugline::cli

// SPDX-License-Identifier: Apache-2.0
// What /proc says about a process that has stopped ticking.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "core/control.h"

namespace tugline::broker {

/// A process as others may look it up.
struct ProcessIdentity {
  std::uint32_t pid = 0;
  std::uint32_t pid_namespace = 0;  ///< inode; 0 when /proc does not show this process by its own pid
};

/// Of the calling process. A /proc of another PID namespace gives namespace 0: there the pid means nothing.
ProcessIdentity own_identity() noexcept;

enum class ProcessCondition : std::uint8_t {
  unknown,  ///< not visible, or gone
  running,  ///< runnable or asleep
  stopped,  ///< by a signal (state T)
  traced,   ///< held by a tracer (state t)
  core_dumping,
};

/// Reads /proc/<pid>/status; about 20 us. `pid` must be of the caller's PID namespace. Never throws.
ProcessCondition condition_of(std::uint32_t pid) noexcept;

/// False once no thread of the process can run anything but the kernel's own end of it: from then on it
/// stores nothing more, though giving back its memory or writing its core file may take long. `pid` must be
/// of the caller's PID namespace. Never throws; true where it cannot be found out.
bool can_run_its_code(std::uint32_t pid) noexcept;

/// "ended with exit code 3" or "was killed by signal 9 (Killed)".
std::string describe(core::ProcessEnd end);

}  // namespace tugline::broker

// SPDX-License-Identifier: Apache-2.0
// Who started this process and as which rank: read from what launchers leave in the environment.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/settings.h"

namespace tugline::base {

/// In the order in which they are asked.
enum class Launcher : std::uint8_t { call, tugline, torchrun, pmix, open_mpi, pmi, slurm, alone };
std::string_view name_of(Launcher launcher) noexcept;  ///< "torchrun", "Open MPI", ...

/// What the caller knows already; it wins over every launcher.
struct IdentityRequest {
  std::optional<int> rank;
  std::optional<int> size;
  std::optional<std::string> job;
};

struct Identity {
  Launcher launcher = Launcher::alone;
  int rank = 0;
  int size = 1;
  int local_rank = 0;       ///< among the ranks of this host; equals rank where no launcher says it
  int restarts = 0;         ///< how often the launcher has started this rank anew (torchrun)
  std::string job;          ///< equal at all ranks of one launch, different between launches; fit for a path
  std::string description;  ///< "rank 1 of 4 from torchrun (RANK, WORLD_SIZE), job torchrun-..."
};

/// Facts that stand in no variable.
struct LaunchFacts {
  /// Names the process that started the ranks of this host; needed where the variables are the same in two
  /// launches that follow each other.
  std::string launcher_process;
  /// Names this process; the job of a process that is alone.
  std::string own_process;
};

/// Pure. Throws Error{invalid_argument} when a variable is not a number, a launcher's variables are there but
/// do not suffice (and no other launcher's do), a rank is not below the size, or the job's name is not 1 to
/// 64 of A-Z a-z 0-9 . _ - (not starting with a dot).
Identity detect_identity(const Environment& environment, const LaunchFacts& facts,
                         const IdentityRequest& request = {});

/// Facts of this process, read from /proc. The launcher is the nearest ancestor that does not have this
/// process's own launch variables, so that wrappers between the two do not matter.
LaunchFacts launch_facts(const Environment& environment);

/// detect_identity() of this process, with one INFO line that says which source was used. Throws as
/// settings() does, too.
Identity identity(const IdentityRequest& request = {});

/// The variables that tell two launches apart, for launch_facts.
std::span<const std::string_view> launch_variables() noexcept;

}  // namespace tugline::base

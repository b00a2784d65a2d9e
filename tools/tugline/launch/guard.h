// SPDX-License-Identifier: Apache-2.0
// Ends what a job left running when its launcher is killed, which can end nothing itself any more.
#pragma once

#include <string>

#include "base/unique_fd.h"

namespace tugline::cli {

/// A small process beside the launcher that sleeps until this object goes. When the launcher's process ends
/// before that, it kills every process that has mark() in its environment: ranks and what they started,
/// whatever signals those ignore and whoever their parent is now. Make it before the first rank. Not
/// thread-safe.
class Guard {
 public:
  /// Throws Error{system} when no process can be had.
  Guard();
  /// Blocks until the guard's process has closed all it had.
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  /// To be set in the environment of each rank, and inherited from there.
  static constexpr const char* kVariable = "_TUGLINE_LAUNCH";
  const std::string& mark() const noexcept { return mark_; }

 private:
  std::string mark_;
  base::UniqueFd socket_;
};

}  // namespace tugline::cli

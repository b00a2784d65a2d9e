// SPDX-License-Identifier: Apache-2.0
// SIGINT, SIGTERM, SIGHUP, SIGTSTP and SIGCHLD as something to poll.
#pragma once

#include <csignal>

#include "base/unique_fd.h"

namespace tugline::cli {

/// Blocks these signals for the calling thread while it lives, and ignores SIGPIPE.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  int descriptor() const noexcept { return descriptor_.get(); }
  /// The next signal that has come, 0 if none. Never blocks.
  int take() noexcept;

 private:
  base::UniqueFd descriptor_;
  sigset_t before_{};
  void (*pipe_before_)(int) = SIG_DFL;
};

}  // namespace tugline::cli

// SPDX-License-Identifier: Apache-2.0
// SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGTTIN and SIGCHLD as something to poll.
#pragma once

#include <csignal>

#include "base/unique_fd.h"

namespace tugline::cli {

struct Signal {
  int number = 0;              ///< 0: none
  bool from_terminal = false;  ///< the kernel sent it to the whole foreground process group
};

/// Blocks these signals for the calling thread while it lives, and ignores SIGPIPE.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  int descriptor() const noexcept { return descriptor_.get(); }
  /// The next signal that has come, if any. Never blocks.
  Signal take() noexcept;
  /// Does to this process what the signal, one of those above, would do if it were not blocked: a stop, but
  /// not in a group without a shell that could continue it.
  void obey(int number) const noexcept;

 private:
  base::UniqueFd descriptor_;
  sigset_t before_{};
  void (*pipe_before_)(int) = SIG_DFL;
};

}  // namespace tugline::cli

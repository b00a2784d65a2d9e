// SPDX-License-Identifier: Apache-2.0
// Whether rank 0 may read the terminal of its launcher, and the terminal's modes after its death.
#pragma once

#include <termios.h>

namespace tugline::cli {

/// Standard input as it was when this was made. Not thread-safe.
class Terminal {
 public:
  Terminal() noexcept;
  /// Standard input is the controlling terminal and this process was in its foreground: who else is in this
  /// process group can read it, and gets its signals (Ctrl-C, Ctrl-Z) from the kernel.
  bool is_ours() const noexcept { return ours_; }
  /// Gives the terminal the modes it had, which a killed reader may have left without echo. Nothing where it
  /// is not ours, or in the background meanwhile.
  void restore() const noexcept;

 private:
  termios modes_{};
  bool ours_ = false;
};

}  // namespace tugline::cli

// SPDX-License-Identifier: Apache-2.0
#include "launch/terminal.h"

#include <unistd.h>

namespace tugline::cli {
namespace {

/// False also where it is no terminal, or another session's.
bool in_foreground() noexcept {
  return ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
}

}  // namespace

Terminal::Terminal() noexcept {
  ours_ = in_foreground() && ::tcgetattr(STDIN_FILENO, &modes_) == 0;
}

void Terminal::restore() const noexcept {
  if (ours_ && in_foreground()) (void)::tcsetattr(STDIN_FILENO, TCSADRAIN, &modes_);
}

}  // namespace tugline::cli

// SPDX-License-Identifier: Apache-2.0
#include "launch/signals.h"

#include <sys/signalfd.h>

#include <cerrno>

#include "tugline/error.h"

namespace tugline::cli {

Signals::Signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGTTIN, SIGCHLD}) {
    struct sigaction before {};
    // Who runs it under nohup, or in the background of a script, wants these ignored; blocked they would
    // come.
    bool ignored = ::sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN;
    if (!ignored || signal == SIGCHLD) sigaddset(&set, signal);
  }
  pthread_sigmask(SIG_BLOCK, &set, &before_);
  pipe_before_ = ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGCHLD, SIG_DFL);  // ignored, as some parents leave it, it would take the ranks' exit codes away
  descriptor_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!descriptor_) {
    throw Error(ErrorCode::system, "cannot make a descriptor for signals",
                "raise the limit of open descriptors (ulimit -n)", {.native_code = errno});
  }
}

Signals::~Signals() {
  ::signal(SIGPIPE, pipe_before_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

Signal Signals::take() noexcept {
  signalfd_siginfo info{};
  if (::read(descriptor_.get(), &info, sizeof info) != sizeof info) return {};
  return {static_cast<int>(info.ssi_signo), info.ssi_code == SI_KERNEL};
}

void Signals::obey(int number) const noexcept {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  ::raise(number);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

}  // namespace tugline::cli

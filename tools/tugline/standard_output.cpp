// SPDX-License-Identifier: Apache-2.0
#include "standard_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tugline/error.h"

namespace tugline::cli {

void fail_output(std::string_view what, int code) {
  if (code == EPIPE) throw ReaderGone{};
  std::string remedy = "redirect standard output to a file or pipe that can be written";
  if (code == ENOSPC || code == EDQUOT) remedy = "free space where standard output goes, or redirect it";
  if (code == EFBIG) remedy = "raise the limit on file sizes (ulimit -f), or write to a pipe";
  if (code == EBADF) remedy = "open standard output, or redirect it: it is closed or open for reading only";
  throw Error(ErrorCode::system,
              fmt::format("cannot write {} to standard output: {}", what, std::strerror(code)), remedy,
              {.operation = "writing standard output", .native_code = code});
}

void write_output(std::string_view what, std::string_view text) {
  while (!text.empty()) {
    auto written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {  // somebody else's descriptor, too, and made non-blocking there
      pollfd room{STDOUT_FILENO, POLLOUT, 0};
      ::poll(&room, 1, -1);
    } else if (errno != EINTR) {
      fail_output(what, errno);
    }
  }
}

void prepare_standard_descriptors() {
  ::signal(SIGPIPE, SIG_IGN);
  // Beyond the limit on file sizes (ulimit -f) a write fails with a reason, instead of ending the process.
  ::signal(SIGXFSZ, SIG_IGN);
  for (int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is this one. The wrong direction makes every use of it fail.
    ::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void end_as_sigpipe() noexcept {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  ::signal(SIGPIPE, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr);
  ::raise(SIGPIPE);
  std::_Exit(128 + SIGPIPE);
}

}  // namespace tugline::cli

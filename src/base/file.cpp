// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "tugline/error.h"

namespace tugline::base {
namespace {

[[noreturn]] void refuse(const std::string& path, std::string_view what, std::string_view why,
                         std::string remedy) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{} {} {}", what, path, why), std::move(remedy),
              {.operation = "reading a file"});
}

[[noreturn]] void fail(const std::string& path, std::string_view what, std::string_view why, int reason) {
  const ErrorCode code = reason == ENOENT || reason == ENOTDIR ? ErrorCode::not_found
                         : reason == EACCES || reason == EPERM ? ErrorCode::permission_denied
                                                               : ErrorCode::system;
  throw Error(code, fmt::format("{} {} {}", what, path, why),
              code == ErrorCode::not_found           ? "name a file that exists"
              : code == ErrorCode::permission_denied ? "make it readable, or name another one"
                                                     : "name a regular file that can be read",
              {.operation = "reading a file", .native_code = reason});
}

}  // namespace

std::string read_file(const std::string& path, std::string_view what, Pipes pipes) {
  // Opening a pipe would wait until somebody writes to it, without a word; so does none of what follows.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) fail(path, what, "cannot be opened", errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) fail(path, what, "cannot be read", errno);
  if (S_ISDIR(info.st_mode)) fail(path, what, "is a directory", EISDIR);
  const bool is_pipe = S_ISFIFO(info.st_mode);
  if (is_pipe && pipes == Pipes::refused)
    refuse(path, what, "is a pipe", "name a regular file: every process reads it");
  std::string text;
  std::array<char, 64 << 10> block;
  for (;;) {
    const auto got = ::read(file.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN && is_pipe) {  // its writer is there
      pollfd more{file.get(), POLLIN, 0};
      ::poll(&more, 1, -1);
      continue;
    }
    if (got < 0) fail(path, what, "cannot be read", errno);
    if (got == 0 && text.empty() && is_pipe)
      refuse(path, what, "is a pipe that nobody writes to",
             "name a regular file, or start what writes to the pipe first");
    if (got == 0) return text;
    text.append(block.data(), static_cast<std::size_t>(got));
    if (text.size() > kLongestFile)
      refuse(path, what, fmt::format("is longer than {} MiB", kLongestFile >> 20),
             "name a file of this kind, not a device");
  }
}

UniqueFd open_to_write(const std::string& path, int flags, mode_t mode) noexcept {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | flags, mode));
  if (!file) return file;
  // Only opening is not to wait: what is written waits for a slow reader.
  const int status = ::fcntl(file.get(), F_GETFL);
  if (status >= 0 && ::fcntl(file.get(), F_SETFL, status & ~O_NONBLOCK) == 0) return file;
  const int reason = errno;
  file.reset();
  errno = reason;
  return file;
}

std::string why_not_written(const std::string& path, int reason) {
  struct stat info {};
  if (reason == ENXIO && ::stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode))
    return "nobody reads this pipe";
  return std::strerror(reason);
}

int write_all(int descriptor, std::string_view text) noexcept {
  while (!text.empty()) {
    const auto written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace tugline::base

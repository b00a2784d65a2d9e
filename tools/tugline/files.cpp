// SPDX-License-Identifier: Apache-2.0
#include "files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include "base/unique_fd.h"
#include "tugline/error.h"

namespace tugline::cli {
namespace {

[[noreturn]] void fail(const std::string& path, std::string_view verb, int code) {
  ErrorCode kind = ErrorCode::system;
  if (code == ENOENT) kind = ErrorCode::not_found;
  if (code == EACCES || code == EPERM || code == EROFS) kind = ErrorCode::permission_denied;
  throw Error(kind, fmt::format("cannot {} \"{}\"", verb, path), "check the path and its mode",
              {.native_code = code});
}

}  // namespace

std::string read_file(const std::string& path) {
  base::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) fail(path, "read", errno);
  std::string text;
  std::array<char, 64 << 10> block;
  while (true) {
    auto got = ::read(file.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path, "read", errno);
    if (got == 0) return text;
    text.append(block.data(), static_cast<std::size_t>(got));
  }
}

void write_file(const std::string& path, std::string_view text) {
  struct stat info {};
  // Devices and pipes (/dev/stdout) are written to, not replaced.
  bool replaced = ::stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode);
  std::string beside = replaced ? fmt::format("{}.{}", path, ::getpid()) : path;
  base::UniqueFd file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) fail(path, "write", errno);
  while (!text.empty()) {
    auto written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      int code = errno;
      if (replaced) ::unlink(beside.c_str());
      fail(path, "write", code);
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (replaced && std::rename(beside.c_str(), path.c_str()) != 0) {
    int code = errno;
    ::unlink(beside.c_str());
    fail(path, "write", code);
  }
}

}  // namespace tugline::cli

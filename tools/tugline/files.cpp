// SPDX-License-Identifier: Apache-2.0
#include "files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/unique_fd.h"
#include "tugline/error.h"
#include "usage.h"

namespace tugline::cli {
namespace {

constexpr std::size_t kLongestFile = 256 << 20;

[[noreturn]] void fail(const std::string& path, std::string_view verb, int code) {
  ErrorCode kind = ErrorCode::system;
  std::string remedy = "check the path and its mode";
  if (code == ENOENT) {
    kind = ErrorCode::not_found;
    if (verb == "write") remedy = "make the folder, or give a path in one that exists";
  }
  if (code == EACCES || code == EPERM || code == EROFS) kind = ErrorCode::permission_denied;
  if (code == EISDIR) remedy = "give a file, not a folder";
  if (code == ENOSPC || code == EDQUOT) remedy = "free space there, or give a path elsewhere";
  auto what = fmt::format("cannot {} \"{}\": {}", verb, path, std::strerror(code));
  if (code == ENOENT && verb == "read") throw UsageError(kind, what, remedy, {.native_code = code});
  throw Error(kind, what, remedy, {.native_code = code});
}

void refuse_pipe_without_writer(int file, const std::string& path) {
  struct stat info {};
  if (::fstat(file, &info) != 0 || !S_ISFIFO(info.st_mode)) return;
  throw UsageError(fmt::format("\"{}\" is a pipe that nobody writes to", path),
                   "give a regular file, or start what writes to the pipe first");
}

/// Where the bytes for a path go first.
struct Target {
  std::string path;      ///< what the user's path leads to, through links
  std::string beside;    ///< written first; equal to `path` for what is no regular file
  bool replaced = true;  ///< `beside` takes the place of `path` at the end
};

Target target_of(const std::string& path) {
  Target target{.path = path};
  std::error_code error;
  if (auto real = std::filesystem::canonical(path, error); !error) target.path = real.string();
  struct stat info {};
  if (::stat(target.path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) fail(path, "write", EISDIR);
    // Devices and pipes (/dev/stdout) are written to, not replaced.
    target.replaced = S_ISREG(info.st_mode);
    // A file that is read-only is not to be changed, though its folder would allow to replace it.
    if (::access(target.path.c_str(), W_OK) != 0) fail(path, "write", errno);
  } else if (errno != ENOENT) {
    fail(path, "write", errno);
  }
  target.beside = target.replaced ? fmt::format("{}.{}", target.path, ::getpid()) : target.path;
  return target;
}

base::UniqueFd open_beside(const Target& target, const std::string& path) {
  base::UniqueFd file(::open(target.beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) fail(path, "write", errno);
  return file;
}

}  // namespace

std::string read_file(const std::string& path) {
  // Opening a pipe would wait until somebody writes to it, without a word; so does none of what follows.
  base::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) fail(path, "read", errno);
  std::string text;
  std::array<char, 64 << 10> block;
  while (true) {
    auto got = ::read(file.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {  // a pipe whose writer is there
      pollfd more{file.get(), POLLIN, 0};
      ::poll(&more, 1, -1);
      continue;
    }
    if (got < 0) fail(path, "read", errno);
    if (got == 0 && text.empty()) refuse_pipe_without_writer(file.get(), path);
    if (got == 0) return text;
    text.append(block.data(), static_cast<std::size_t>(got));
    if (text.size() > kLongestFile)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("\"{}\" is longer than {} MiB", path, kLongestFile >> 20),
                  "give a file of this kind, not a device");
  }
}

void check_writable(const std::string& path) {
  auto target = target_of(path);
  // Opening a pipe would wait for its reader.
  if (!target.replaced) return;
  open_beside(target, path);
  ::unlink(target.beside.c_str());
}

void write_file(const std::string& path, std::string_view text) {
  auto target = target_of(path);
  auto file = open_beside(target, path);
  int code = 0;
  while (!text.empty() && code == 0) {
    auto written = ::write(file.get(), text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      code = errno;
    }
  }
  if (code == 0 && target.replaced && std::rename(target.beside.c_str(), target.path.c_str()) != 0)
    code = errno;
  if (code == 0) return;
  if (target.replaced) ::unlink(target.beside.c_str());
  fail(path, "write", code);
}

}  // namespace tugline::cli

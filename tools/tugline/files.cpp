// SPDX-License-Identifier: Apache-2.0
#include "files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/file.h"
#include "tugline/error.h"
#include "usage.h"

namespace tugline::cli {
namespace {

[[noreturn]] void fail(const std::string& path, int code) {
  ErrorCode kind = ErrorCode::system;
  std::string remedy = "check the path and its mode";
  if (code == ENOENT) {
    kind = ErrorCode::not_found;
    remedy = "make the folder, or give a path in one that exists";
  }
  if (code == EACCES || code == EPERM || code == EROFS) kind = ErrorCode::permission_denied;
  if (code == EISDIR) remedy = "give a file, not a folder";
  if (code == ENOSPC || code == EDQUOT) remedy = "free space there, or give a path elsewhere";
  if (code == ENXIO) remedy = "start what reads it first, or give a path to a file";
  throw Error(kind, fmt::format("cannot write \"{}\": {}", path, base::why_not_written(path, code)), remedy,
              {.native_code = code});
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
    if (S_ISDIR(info.st_mode)) fail(path, EISDIR);
    // Devices and pipes (/dev/stdout) are written to, not replaced.
    target.replaced = S_ISREG(info.st_mode);
    // A file that is read-only is not to be changed, though its folder would allow to replace it.
    if (::access(target.path.c_str(), W_OK) != 0) fail(path, errno);
  } else if (errno != ENOENT) {
    fail(path, errno);
  }
  target.beside = target.replaced ? fmt::format("{}.{}", target.path, ::getpid()) : target.path;
  return target;
}

base::UniqueFd open_beside(const Target& target, const std::string& path) {
  auto file = base::open_to_write(target.beside, O_CREAT | O_TRUNC, 0666);
  if (!file) fail(path, errno);
  return file;
}

}  // namespace

std::string read_file(const std::string& path, std::string_view what) {
  try {
    return base::read_file(path, what, base::Pipes::read);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found && error.code() != ErrorCode::invalid_argument) throw;
    throw UsageError(error.code(), error.what_failed(), error.what_to_do(), error.context());
  }
}

base::UniqueFd check_writable(const std::string& path) {
  const auto target = target_of(path);
  auto file = open_beside(target, path);
  if (!target.replaced) return file;
  ::unlink(target.beside.c_str());
  return {};
}

void write_file(const std::string& path, std::string_view text) {
  auto target = target_of(path);
  auto file = open_beside(target, path);
  int code = base::write_all(file.get(), text);
  if (code == 0 && target.replaced && std::rename(target.beside.c_str(), target.path.c_str()) != 0)
    code = errno;
  if (code == 0) return;
  if (target.replaced) ::unlink(target.beside.c_str());
  fail(path, code);
}

}  // namespace tugline::cli

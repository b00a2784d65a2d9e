// SPDX-License-Identifier: Apache-2.0
#include "output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "tugline/error.h"

namespace train_fashion {
namespace {

[[noreturn]] void fail(const std::string& what, const char* remedy, int code) {
  tugline::ErrorContext context;
  context.operation = "writing results";
  context.native_code = code;
  throw tugline::Error(tugline::ErrorCode::system,
                       fmt::format("cannot write {}: {}", what, std::strerror(code)), remedy, context);
}

[[noreturn]] void fail_on(const std::filesystem::path& path, int code) {
  fail(path.string(), "give --json a file in a folder that exists, is writable and has room", code);
}

/// Devices and pipes (/dev/stdout) are written to, not replaced.
bool is_replaced(const std::filesystem::path& path) {
  std::error_code error;
  const auto kind = std::filesystem::status(path, error).type();
  if (kind == std::filesystem::file_type::directory) fail_on(path, EISDIR);
  return kind == std::filesystem::file_type::regular || kind == std::filesystem::file_type::not_found;
}

std::filesystem::path beside(const std::filesystem::path& path) {
  return is_replaced(path) ? std::filesystem::path(fmt::format("{}.{}", path.string(), getpid())) : path;
}

}  // namespace

void flush_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  fail("standard output", "free space where standard output goes, or redirect it", errno != 0 ? errno : EIO);
}

void check_writable(const std::filesystem::path& path) {
  const auto target = beside(path);
  if (target == path) return;  // opening a pipe would wait for its reader
  errno = 0;
  if (!std::ofstream(target)) fail_on(path, errno);
  std::filesystem::remove(target);
}

void write_whole(const std::filesystem::path& path, std::string_view text) {
  const auto target = beside(path);
  errno = 0;
  std::ofstream file(target);
  file << text;
  file.close();
  int code = file ? 0 : errno;
  std::error_code error;
  if (code == 0 && target != path) std::filesystem::rename(target, path, error);
  if (error) code = error.value();
  if (code == 0) return;
  if (target != path) std::filesystem::remove(target, error);
  fail_on(path, code);
}

}  // namespace train_fashion

// SPDX-License-Identifier: Apache-2.0
#include "launch/program.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "tugline/error.h"
#include "usage.h"

namespace tugline::cli {
namespace {

bool is_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

/// The path is a file that could be a program, or an error says what it is.
void require_file(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    int code = errno;
    if (code == ENOENT)
      throw UsageError(ErrorCode::not_found, fmt::format("there is no program \"{}\"", path),
                       "check the path after --");
    throw UsageError(code == EACCES ? ErrorCode::permission_denied : ErrorCode::not_found,
                     fmt::format("program \"{}\" cannot be reached: {}", path, std::strerror(code)),
                     "check every folder of the path after --", {.native_code = code});
  }
  if (S_ISDIR(info.st_mode))
    throw UsageError(fmt::format("\"{}\" is a directory, not a program", path),
                     "name a program in it after --");
  if (!S_ISREG(info.st_mode))
    throw UsageError(fmt::format("\"{}\" is no regular file", path), "name a program after --");
}

/// The interpreter that a script's first line names; empty if it names none.
std::string interpreter_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  // A program without a line end is not read to its end: the kernel looks at 256 bytes.
  std::string line(256, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<std::size_t>(file.gcount()));
  line.resize(std::min(line.find('\n'), line.size()));
  if (!line.starts_with("#!")) return {};
  auto begin = line.find_first_not_of(" \t", 2);
  if (begin == std::string::npos) return {};
  return line.substr(begin, line.find_first_of(" \t\r", begin) - begin);
}

}  // namespace

void fail_to_start(const std::string& path, int code) {
  auto interpreter = interpreter_of(path);
  bool of_path = code == ENOENT || code == ENOTDIR || code == EACCES || code == ELOOP || code == ENOEXEC;
  if (!interpreter.empty() && of_path) {
    throw Error(code == EACCES ? ErrorCode::permission_denied : ErrorCode::not_found,
                fmt::format("cannot start \"{}\": its first line names the interpreter \"{}\": {}", path,
                            interpreter, std::strerror(code)),
                "correct the line after #! (no carriage return at its end), or install the interpreter",
                {.native_code = code});
  }
  std::string remedy = "check that it is a program for this machine";
  if (code == ENOEXEC)
    remedy = "it is no program for this machine; a script needs a first line such as #!/bin/sh";
  if (code == ENOENT)
    remedy = "the file is there, but not the loader that it was linked for; build it for this system";
  if (code == E2BIG) remedy = "pass fewer or shorter arguments and environment variables";
  if (code == EACCES) remedy = "allow its execution: chmod +x, and no noexec mount";
  throw Error(code == EACCES ? ErrorCode::permission_denied : ErrorCode::system,
              fmt::format("cannot start \"{}\": {}", path, std::strerror(code)), remedy,
              {.native_code = code});
}

std::string find_program(const std::string& name) {
  if (name.empty()) throw UsageError("the program after -- is an empty word", "name a program");
  if (name.find('/') != std::string::npos) {
    require_file(name);
    if (::access(name.c_str(), X_OK) != 0) {
      throw UsageError(
          ErrorCode::permission_denied, fmt::format("\"{}\" is not executable", name),
          fmt::format("chmod +x it, or name its interpreter first (for example python3 {})", name),
          {.native_code = errno});
    }
    return name;
  }
  const char* variable = std::getenv("PATH");
  std::string_view path = variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin";
  std::string found_without_right;
  for (std::size_t begin = 0; begin <= path.size();) {
    std::size_t end = std::min(path.find(':', begin), path.size());
    std::string folder(path.substr(begin, end - begin));
    std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (is_file(candidate)) {
      if (::access(candidate.c_str(), X_OK) == 0) return candidate;
      found_without_right = candidate;
    }
    begin = end + 1;
  }
  if (!found_without_right.empty()) {
    throw UsageError(ErrorCode::permission_denied,
                     fmt::format("\"{}\" is not executable", found_without_right),
                     "chmod +x it, or name its interpreter first");
  }
  throw UsageError(ErrorCode::not_found, fmt::format("there is no program \"{}\" in PATH ({})", name, path),
                   fmt::format("install it, or give its path (./{} for one in this folder)", name));
}

std::string own_program() {
  std::error_code error;
  auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    throw Error(ErrorCode::system, "cannot read /proc/self/exe", "mount /proc in this container",
                {.native_code = error.value()});
  }
  return path.string();
}

}  // namespace tugline::cli

// SPDX-License-Identifier: Apache-2.0
#include "launch/program.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "tugline/error.h"

namespace tugline::cli {
namespace {

bool is_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (!is_file(name)) {
      throw Error(ErrorCode::not_found, fmt::format("there is no program \"{}\"", name),
                  "check the path after --");
    }
    if (::access(name.c_str(), X_OK) != 0) {
      throw Error(ErrorCode::permission_denied, fmt::format("\"{}\" is not executable", name),
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
    throw Error(ErrorCode::permission_denied, fmt::format("\"{}\" is not executable", found_without_right),
                "chmod +x it, or name its interpreter first");
  }
  throw Error(ErrorCode::not_found, fmt::format("there is no program \"{}\" in PATH ({})", name, path),
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

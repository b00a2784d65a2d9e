// SPDX-License-Identifier: Apache-2.0
// Directories of brokers: made, checked, locked, and removed by whoever sees that they are dead.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "broker/place.h"
#include "tugline/error.h"

namespace tugline::broker {
namespace {

constexpr int kOpenFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

[[noreturn]] void refuse(ErrorCode code, std::string what, const std::string& path, int reason = 0) {
  throw Error(code, std::move(what), "set TUGLINE_RUNTIME_DIR, or --socket, to a directory of your own",
              {.operation = "open " + path, .native_code = reason});
}

[[noreturn]] void fail_to_open(const std::string& path, int reason) {
  struct stat status {};
  const bool link = (reason == ELOOP || reason == ENOTDIR) && ::lstat(path.c_str(), &status) == 0 &&
                    S_ISLNK(status.st_mode);
  if (link) refuse(ErrorCode::permission_denied, fmt::format("{} is a symbolic link", path), path, reason);
  if (reason == ENOTDIR)
    refuse(ErrorCode::not_found, fmt::format("{} is not a directory", path), path, reason);
  fail_on_path("open", path, reason);
}

// The one rule for every directory that a socket or token is kept below.
void check_own(int directory, const std::string& path) {
  struct statfs system {};
  if (::fstatfs(directory, &system) == 0 &&
      (system.f_type == PROC_SUPER_MAGIC || system.f_type == SYSFS_MAGIC))
    refuse(ErrorCode::invalid_argument, fmt::format("{} is of the kernel's own and takes no files", path),
           path);
  struct stat status {};
  if (::fstat(directory, &status) != 0) fail_on_path("fstat", path, errno);
  if (status.st_uid != ::geteuid())
    throw Error(
        ErrorCode::permission_denied,
        fmt::format("{} belongs to user {}, this process runs as user {}", path, status.st_uid, ::geteuid()),
        "run as the user who started the job, or set TUGLINE_RUNTIME_DIR to a directory of your own");
  if ((status.st_mode & 077) != 0)
    throw Error(
        ErrorCode::permission_denied,
        fmt::format("{} has mode {:04o}: others could reach the broker", path, status.st_mode & 07777),
        fmt::format("chmod 700 {}, or name a directory that does not exist yet", path));
}

// One level only: who misspells a path is not to find a tree of it.
bool make_named(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0) return true;
  const int reason = errno;
  if (reason == EEXIST) return false;
  if (reason == ENOENT) {
    const auto slash = path.find_last_of('/');
    const auto parent = slash == 0 ? std::string("/") : path.substr(0, slash);
    if (::access(parent.c_str(), F_OK) != 0)
      throw Error(ErrorCode::not_found, fmt::format("{} cannot be made: {} is not there", path, parent),
                  fmt::format("make it first: mkdir -p {}", parent),
                  {.operation = "mkdir " + path, .native_code = reason});
    refuse(ErrorCode::not_found, fmt::format("{} is not there, and {} takes no directories", path, parent),
           path, reason);
  }
  fail_on_path("mkdir", path, reason);
}

/// Opens a directory that the user named; none if it is missing and not to be made.
base::UniqueFd open_named(const std::string& path, Missing missing, Made* made) {
  for (;;) {
    base::UniqueFd directory(::open(path.c_str(), kOpenFlags));
    if (!directory && errno != ENOENT) fail_to_open(path, errno);
    if (directory) {
      check_own(directory.get(), path);
      return directory;
    }
    if (missing == Missing::fail) return {};
    if (make_named(path) && made != nullptr) made->directory = path;
  }
}

bool is_removed(int directory) {
  struct stat status {};
  return ::fstat(directory, &status) == 0 && status.st_nlink == 0;
}

std::array<std::string, 4> leaves(const std::string& socket_name) {
  const std::string token(kTokenFileName);
  return {socket_name, token, socket_name + ".new", token + ".new"};
}

bool take_lock(int directory) {
  while (::flock(directory, LOCK_EX | LOCK_NB) != 0)
    if (errno != EINTR) return false;
  return true;
}

struct CloseDirectory {
  void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};

/// Names in it, without "." and "..".
std::vector<std::string> names_in(int directory) {
  std::vector<std::string> names;
  base::UniqueFd again(::openat(directory, ".", kOpenFlags));
  std::unique_ptr<DIR, CloseDirectory> stream(again ? ::fdopendir(again.get()) : nullptr);
  if (!stream) return {"?"};  // not empty, for all that is known
  (void)again.release();
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  return names;
}

void remove_if_left_over(const std::string& runtime_directory, int runtime, const std::string& job) {
  base::UniqueFd directory(::openat(runtime, job.c_str(), kOpenFlags));
  struct stat held {};
  if (!directory || ::fstat(directory.get(), &held) != 0) return;
  if (held.st_uid != ::geteuid() || (held.st_mode & 07777) != 0700 || !take_lock(directory.get())) return;
  struct stat named {};
  const auto names = names_in(directory.get());
  const auto own = leaves(std::string(kSocketName));
  const bool only_ours = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return std::find(own.begin(), own.end(), name) != own.end();
  });
  if (!only_ours || ::fstatat(runtime, job.c_str(), &named, AT_SYMLINK_NOFOLLOW) != 0 ||
      named.st_ino != held.st_ino || named.st_dev != held.st_dev)
    return;
  for (const auto& name : names) ::unlinkat(directory.get(), name.c_str(), 0);
  if (::unlinkat(runtime, job.c_str(), AT_REMOVEDIR) == 0)
    base::log(base::LogLevel::info, "removed {}/{}, which a broker left that ended early", runtime_directory,
              job);
}

}  // namespace

base::UniqueFd open_directory(const Place& place, Missing missing, Made* made) {
  if (!place.derived_from_job) return open_named(place.directory, missing, made);
  const auto job = place.directory.substr(place.runtime_directory.size() + 1);
  for (;;) {
    const auto runtime = open_named(place.runtime_directory, missing, made);
    if (!runtime) return {};
    const bool made_here = missing == Missing::make && ::mkdirat(runtime.get(), job.c_str(), 0700) == 0;
    if (missing == Missing::make && !made_here && errno != EEXIST) {
      const int reason = errno;
      // Somebody's failed start has just taken the runtime directory away that it had made.
      if (reason == ENOENT && is_removed(runtime.get())) continue;
      fail_on_path("mkdir", place.runtime_directory, reason);
    }
    base::UniqueFd directory(::openat(runtime.get(), job.c_str(), kOpenFlags));
    if (!directory && errno == ENOENT) {
      if (missing == Missing::fail) return {};
      continue;  // as above, of the job's directory
    }
    if (!directory) {
      const int reason = errno;
      // Without a descriptor for it nobody could tidy up later.
      if (made_here) ::unlinkat(runtime.get(), job.c_str(), AT_REMOVEDIR);
      fail_to_open(place.directory, reason);
    }
    check_own(directory.get(), place.directory);
    return directory;
  }
}

bool lock_directory(const Place& place, int directory) {
  while (::flock(directory, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) fail_on_path("flock", named_by_user(place), errno);
  }
  // A broker that ends removes its directory while it holds the lock: what is locked may be gone.
  struct stat held {};
  struct stat named {};
  if (::fstat(directory, &held) != 0) fail_on_path("fstat", named_by_user(place), errno);
  return ::lstat(place.directory.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
         held.st_dev == named.st_dev;
}

base::UniqueFd claim_directory(const Place& place, Made* made) {
  constexpr std::chrono::milliseconds kEndingTakesAtMost{1'000};
  const auto deadline = base::running_deadline(kEndingTakesAtMost);
  for (;;) {
    auto directory = open_directory(place, Missing::make, made);
    if (lock_directory(place, directory.get())) return directory;
    int reason = 0;
    const bool serves = static_cast<bool>(connect_to(place, directory.get(), reason));
    if (serves || base::running_ns() > deadline)
      throw Error(ErrorCode::already_exists, fmt::format("another broker serves {}", place.socket_path),
                  "join that job, end it first, or use another job name");
    // Locked, but nobody accepts: it ends, and the lock with it.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void remove_files(const Place& place, int directory) noexcept {
  for (const auto& leaf : leaves(place.socket_name)) {
    // In a directory of his, the name may be a file of the user's that was in the way.
    struct stat status {};
    if (!place.derived_from_job && leaf == place.socket_name &&
        ::fstatat(directory, leaf.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISSOCK(status.st_mode))
      continue;
    if (::unlinkat(directory, leaf.c_str(), 0) != 0 && errno != ENOENT)
      base::log(base::LogLevel::warn, "cannot remove {}/{}: {}", place.directory, leaf, std::strerror(errno));
  }
  // A directory that the user named, or with files of his in it, stays.
  if (place.derived_from_job && ::rmdir(place.directory.c_str()) != 0 && errno != ENOENT &&
      errno != ENOTEMPTY && errno != EEXIST)
    base::log(base::LogLevel::warn, "cannot remove {}: {}", place.directory, std::strerror(errno));
  // Not left to close(): a forked child may hold the same open file.
  ::flock(directory, LOCK_UN);
}

void remove_if_dead(const Place& place, const Made& made) noexcept {
  try {
    const auto directory = open_directory(place, Missing::fail);
    if (directory && lock_directory(place, directory.get())) remove_files(place, directory.get());
  } catch (const Error& error) {
    base::log(base::LogLevel::debug, "nothing removed of {}: {}", place.directory, error.what_failed());
  }
  // Fails, as it should, when another job has come in meanwhile.
  if (!made.directory.empty()) ::rmdir(made.directory.c_str());
}

void remove_left_overs(const std::string& runtime_directory) noexcept {
  try {
    const auto runtime = open_named(runtime_directory, Missing::fail, nullptr);
    if (!runtime) return;
    for (const auto& job : names_in(runtime.get()))
      remove_if_left_over(runtime_directory, runtime.get(), job);
  } catch (const Error& error) {
    base::log(base::LogLevel::debug, "nothing removed below {}: {}", runtime_directory, error.what_failed());
  }
}

}  // namespace tugline::broker

// SPDX-License-Identifier: Apache-2.0
#include "broker/place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "base/settings.h"
#include "tugline/error.h"

namespace tugline::broker {
namespace {

constexpr std::size_t kSocketPathLimit = sizeof(sockaddr_un::sun_path) - 1;

[[noreturn]] void fail_on_path(const char* call, const std::string& path, int reason) {
  ErrorContext context{.operation = call, .native_code = reason};
  if (reason == EACCES || reason == EPERM || reason == EROFS)
    throw Error(ErrorCode::permission_denied, fmt::format("no permission for {}", path),
                "set TUGLINE_RUNTIME_DIR to a directory that this user may write", std::move(context));
  if (reason == ENOENT || reason == ENOTDIR)
    throw Error(ErrorCode::not_found, fmt::format("{} is not there or not a directory", path),
                "check TUGLINE_RUNTIME_DIR and TUGLINE_SOCKET_PATH", std::move(context));
  if (reason == EMFILE || reason == ENFILE)
    throw Error(ErrorCode::out_of_memory, fmt::format("no descriptor left to open {}", path),
                "close descriptors, or raise the limit: ulimit -n", std::move(context));
  throw Error(ErrorCode::system, fmt::format("{} failed for {}", call, path),
              "check that the file system is mounted, has room, and supports sockets", std::move(context));
}

void make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return;
  if (errno != ENOENT) fail_on_path("mkdir", path, errno);
  const auto slash = path.find_last_of('/');
  if (slash == std::string::npos || slash == 0) fail_on_path("mkdir", path, ENOENT);
  make_directory(path.substr(0, slash));
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) fail_on_path("mkdir", path, errno);
}

// The kernel limits a socket's address to 107 characters; naming the directory by descriptor leaves them all
// to the leaf, and the directory that was checked is the one that is used.
sockaddr_un address_of(const Place& place, int directory, std::string_view leaf) {
  const auto name = fmt::format("/proc/self/fd/{}/{}", directory, leaf);
  if (::access("/proc/self/fd", F_OK) != 0)
    throw Error(ErrorCode::unsupported, "/proc is not mounted, and sockets are found through it",
                "mount /proc in this container");
  if (name.size() > kSocketPathLimit)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("socket name {} is too long: {} characters, at most {} fit beside its directory",
                            place.socket_path, leaf.size(), kSocketPathLimit - (name.size() - leaf.size())),
                "use a shorter socket name");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name.data(), name.size());
  return address;
}

base::UniqueFd make_socket() {
  base::UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) fail_on_path("socket", "a local socket", errno);
  return socket;
}

void unlink_if_there(const Place& place, int directory, const std::string& leaf) {
  if (::unlinkat(directory, leaf.c_str(), 0) != 0 && errno != ENOENT)
    fail_on_path("unlink", place.directory + "/" + leaf, errno);
}

}  // namespace

void check_job_name(std::string_view job) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  if (!job.empty() && job.size() <= core::kMaxJobNameBytes && job.front() != '.' &&
      std::all_of(job.begin(), job.end(), allowed))
    return;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("job name \"{}\" ({} characters) cannot be a directory's name", job, job.size()),
      fmt::format("use 1 to {} of A-Z a-z 0-9 . _ - that do not start with a dot", core::kMaxJobNameBytes));
}

std::string runtime_directory() {
  if (const auto& set = base::settings().runtime_dir; !set.empty()) return set;
  if (const char* xdg = std::getenv("XDG_RUNTIME_DIR"); xdg != nullptr && xdg[0] == '/')
    return std::string(xdg) + "/tugline";
  const auto user = std::to_string(::geteuid());
  const auto run_user = "/run/user/" + user;
  if (::access(run_user.c_str(), W_OK | X_OK) == 0) return run_user + "/tugline";
  return "/tmp/tugline-" + user;
}

Place place_of(std::string_view socket_path, std::string_view job) {
  Place place;
  if (socket_path.empty()) {
    check_job_name(job);
    place.directory = runtime_directory() + "/" + std::string(job);
    place.socket_name = kSocketName;
    place.socket_path = place.directory + "/" + place.socket_name;
    place.derived_from_job = true;
  } else {
    const auto slash = socket_path.find_last_of('/');
    place.directory = slash == std::string_view::npos ? "." : std::string(socket_path.substr(0, slash));
    if (slash == 0) place.directory = "/";
    place.socket_name = socket_path.substr(slash == std::string_view::npos ? 0 : slash + 1);
    place.socket_path = socket_path;
  }
  if (place.socket_name.empty() || place.socket_name == "." || place.socket_name == ".." ||
      place.socket_path.find('\0') != std::string::npos)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("socket path \"{}\" does not end in a file name", place.socket_path),
                "give the path of the socket itself, as in /run/tugline/job/broker.sock");
  // Twelve characters less than the address: "/proc/self/fd/" and a descriptor's number take the rest.
  constexpr std::size_t kNameLimit = 80;
  if (place.socket_name.size() > kNameLimit)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("socket path {} is too long: its last part has {} characters, the limit is {}",
                            place.socket_path, place.socket_name.size(), kNameLimit),
                "use a shorter socket name; its directory may be longer");
  const auto deepest = place.directory.size() + 1 + std::max(place.socket_name.size(), kTokenFileName.size());
  if (deepest >= PATH_MAX)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("socket path {} is too long: {} characters, the limit is {}", place.socket_path,
                            deepest, PATH_MAX - 1),
                "set TUGLINE_RUNTIME_DIR to a shorter path");
  return place;
}

base::UniqueFd open_directory(const Place& place, Missing missing) {
  if (missing == Missing::make) make_directory(place.directory);
  base::UniqueFd directory(::open(place.directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) {
    const int reason = errno;
    if (reason == ENOENT) return {};
    if (reason == ELOOP || reason == ENOTDIR)
      throw Error(ErrorCode::permission_denied,
                  fmt::format("{} is a symbolic link or not a directory", place.directory),
                  "remove it, or set TUGLINE_RUNTIME_DIR to a directory of your own",
                  {.operation = "open", .native_code = reason});
    fail_on_path("open", place.directory, reason);
  }
  struct stat status {};
  if (::fstat(directory.get(), &status) != 0) fail_on_path("fstat", place.directory, errno);
  if (status.st_uid != ::geteuid())
    throw Error(ErrorCode::permission_denied,
                fmt::format("{} belongs to user {}, this process runs as user {}", place.directory,
                            status.st_uid, ::geteuid()),
                "run as the user who started the job, or set TUGLINE_RUNTIME_DIR to a directory of your own");
  if ((status.st_mode & 077) != 0)
    throw Error(ErrorCode::permission_denied,
                fmt::format("{} has mode {:04o}: others could reach the broker", place.directory,
                            status.st_mode & 07777),
                fmt::format("chmod 700 {}, or name a directory that does not exist yet", place.directory));
  return directory;
}

bool lock_directory(const Place& place, int directory) {
  while (::flock(directory, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) fail_on_path("flock", place.directory, errno);
  }
  // A broker that ends removes its directory while it holds the lock: what is locked may be gone.
  struct stat held {};
  struct stat named {};
  if (::fstat(directory, &held) != 0) fail_on_path("fstat", place.directory, errno);
  return ::lstat(place.directory.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
         held.st_dev == named.st_dev;
}

base::UniqueFd claim_directory(const Place& place) {
  constexpr std::uint64_t kEndingTakesAtMostNs = 1'000'000'000;
  const auto deadline = base::monotonic_ns() + kEndingTakesAtMostNs;
  for (;;) {
    auto directory = open_directory(place, Missing::make);
    if (directory && lock_directory(place, directory.get())) return directory;
    int reason = 0;
    const bool serves = directory && connect_to(place, directory.get(), reason);
    if (serves || base::monotonic_ns() > deadline)
      throw Error(ErrorCode::already_exists, fmt::format("another broker serves {}", place.socket_path),
                  "join that job, end it first, or use another job name");
    // Locked, but nobody accepts: it ends, and the lock with it.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

base::UniqueFd connect_to(const Place& place, int directory, int& native_code) {
  const auto address = address_of(place, directory, place.socket_name);
  auto socket = make_socket();
  int result;
  do {
    result = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  } while (result != 0 && errno == EINTR);
  native_code = result == 0 ? 0 : errno;
  if (result != 0) socket.reset();
  return socket;
}

base::UniqueFd listen_at(const Place& place, int directory) {
  const auto unfinished = place.socket_name + ".new";
  unlink_if_there(place, directory, unfinished);
  const auto address = address_of(place, directory, unfinished);
  auto socket = make_socket();
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    fail_on_path("bind", place.socket_path, errno);
  // Not by umask: that belongs to the whole process. Nobody else can reach into the directory meanwhile.
  if (::fchmodat(directory, unfinished.c_str(), 0600, 0) != 0)
    fail_on_path("chmod", place.socket_path, errno);
  if (::listen(socket.get(), SOMAXCONN) != 0) fail_on_path("listen", place.socket_path, errno);
  if (::renameat(directory, unfinished.c_str(), directory, place.socket_name.c_str()) != 0)
    fail_on_path("rename", place.socket_path, errno);
  return socket;
}

void write_token(const Place& place, int directory, std::string_view token_hex) {
  const std::string leaf(kTokenFileName);
  const auto unfinished = leaf + ".new";
  unlink_if_there(place, directory, unfinished);
  base::UniqueFd file(
      ::openat(directory, unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) fail_on_path("open", place.directory + "/" + unfinished, errno);
  if (::write(file.get(), token_hex.data(), token_hex.size()) != static_cast<ssize_t>(token_hex.size()))
    fail_on_path("write", place.directory + "/" + unfinished, errno);
  if (::renameat(directory, unfinished.c_str(), directory, leaf.c_str()) != 0)
    fail_on_path("rename", place.directory + "/" + leaf, errno);
}

std::string read_token(const Place& place, int directory) {
  const std::string leaf(kTokenFileName);
  const auto path = place.directory + "/" + leaf;
  base::UniqueFd file(::openat(directory, leaf.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) {
    if (errno == ENOENT)
      throw Error(ErrorCode::not_found, fmt::format("the broker's token file {} is not there", path),
                  "set TUGLINE_TOKEN to the job's token, or start the job with `tugline run`",
                  {.operation = "open", .native_code = ENOENT});
    fail_on_path("open", path, errno);
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_on_path("fstat", path, errno);
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 077) != 0)
    throw Error(ErrorCode::permission_denied,
                fmt::format("token file {} is not this user's alone (user {}, mode {:04o})", path,
                            status.st_uid, status.st_mode & 07777),
                "end the job and remove its directory; somebody else may know the token");
  std::array<char, 2 * core::kTokenBytes + 1> text;
  const auto bytes = ::read(file.get(), text.data(), text.size());
  if (bytes < 0) fail_on_path("read", path, errno);
  std::string token(text.data(), static_cast<std::size_t>(bytes));
  if (!parse_token(token))
    throw Error(ErrorCode::protocol,
                fmt::format("token file {} holds no token of 64 hexadecimal digits", path),
                "end the job and remove its directory");
  return token;
}

}  // namespace tugline::broker

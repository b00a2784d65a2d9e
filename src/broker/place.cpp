// SPDX-License-Identifier: Apache-2.0
#include "broker/place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "base/settings.h"
#include "tugline/error.h"

namespace tugline::broker {
namespace {

constexpr std::size_t kSocketPathLimit = sizeof(sockaddr_un::sun_path) - 1;

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

// Processes of one job may have different working directories, and a broker has none.
std::string absolute(const std::string& path) {
  if (path.starts_with('/')) return path;
  std::array<char, PATH_MAX> folder;
  if (::getcwd(folder.data(), folder.size()) == nullptr) {
    if (errno != ENOENT) fail_on_path("getcwd", path, errno);
    throw Error(ErrorCode::not_found,
                fmt::format("\"{}\" is relative to the working directory, which has been removed", path),
                "change to a directory that is there, or give an absolute path", {.native_code = ENOENT});
  }
  return std::string(folder.data()) + "/" + path;
}

base::UniqueFd make_socket() {
  base::UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) fail_on_path("socket", "a local socket", errno);
  return socket;
}

void unlink_if_there(const Place& place, int directory, const std::string& leaf) {
  if (::unlinkat(directory, leaf.c_str(), 0) != 0 && errno != ENOENT)
    fail_on_path("unlink", named_by_user(place), errno);
}

}  // namespace

void fail_on_path(const char* call, const std::string& path, int reason) {
  ErrorContext context{.operation = fmt::format("{} {}", call, path), .native_code = reason};
  if (reason == EROFS)
    throw Error(ErrorCode::permission_denied, fmt::format("{} is on a read-only file system", path),
                "set TUGLINE_RUNTIME_DIR to a directory that this user may write", std::move(context));
  if (reason == EACCES || reason == EPERM)
    throw Error(ErrorCode::permission_denied, fmt::format("no permission for {}", path),
                "set TUGLINE_RUNTIME_DIR to a directory that this user may write", std::move(context));
  if (reason == ENOSPC || reason == EDQUOT)
    throw Error(
        ErrorCode::system,
        fmt::format("no room for a broker's socket and token in {}: {}", path,
                    reason == ENOSPC ? "ENOSPC, its file system is full" : "EDQUOT, the quota is used up"),
        "free space or files there (df, df -i), or set TUGLINE_RUNTIME_DIR to another file system",
        std::move(context));
  if (reason == ENOENT || reason == ENOTDIR)
    throw Error(ErrorCode::not_found, fmt::format("{} is not there or not a directory", path),
                "check TUGLINE_RUNTIME_DIR and TUGLINE_SOCKET_PATH", std::move(context));
  if (reason == EMFILE || reason == ENFILE)
    throw Error(ErrorCode::out_of_memory, Remedy::fix_call,
                fmt::format("no descriptor left to open {}", path),
                "close descriptors, or raise the limit: ulimit -n", std::move(context));
  throw Error(ErrorCode::system, fmt::format("{} failed for {}", call, path),
              "check that the file system is mounted, has room, and supports sockets", std::move(context));
}

const std::string& named_by_user(const Place& place) {
  return place.derived_from_job ? place.runtime_directory : place.directory;
}

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
  if (const auto& set = base::settings().runtime_dir; !set.empty()) return absolute(set);
  // Stale in many containers and after su.
  if (const char* xdg = std::getenv("XDG_RUNTIME_DIR");
      xdg != nullptr && xdg[0] == '/' && ::access(xdg, W_OK | X_OK) == 0)
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
    place.runtime_directory = runtime_directory();
    place.directory = place.runtime_directory + "/" + std::string(job);
    place.socket_name = kSocketName;
    place.socket_path = place.directory + "/" + place.socket_name;
    place.derived_from_job = true;
  } else {
    place.socket_path = absolute(std::string(socket_path));
    const auto slash = place.socket_path.find_last_of('/');
    place.directory = slash == 0 ? "/" : place.socket_path.substr(0, slash);
    place.socket_name = place.socket_path.substr(slash + 1);
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
    fail_on_path("bind", named_by_user(place), errno);
  // Not by umask: that belongs to the whole process. Nobody else can reach into the directory meanwhile.
  if (::fchmodat(directory, unfinished.c_str(), 0600, 0) != 0)
    fail_on_path("chmod", named_by_user(place), errno);
  if (::listen(socket.get(), SOMAXCONN) != 0) fail_on_path("listen", place.socket_path, errno);
  if (::renameat(directory, unfinished.c_str(), directory, place.socket_name.c_str()) != 0)
    fail_on_path("rename", named_by_user(place), errno);
  return socket;
}

void write_token(const Place& place, int directory, std::string_view token_hex) {
  const std::string leaf(kTokenFileName);
  const auto unfinished = leaf + ".new";
  unlink_if_there(place, directory, unfinished);
  base::UniqueFd file(
      ::openat(directory, unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) fail_on_path("open", named_by_user(place), errno);
  const auto written = ::write(file.get(), token_hex.data(), token_hex.size());
  if (written != static_cast<ssize_t>(token_hex.size()))
    fail_on_path("write", named_by_user(place), written < 0 ? errno : ENOSPC);
  if (::renameat(directory, unfinished.c_str(), directory, leaf.c_str()) != 0)
    fail_on_path("rename", named_by_user(place), errno);
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

// SPDX-License-Identifier: Apache-2.0
// Where sockets and tokens go, and how the processes of this machine may see each other.
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include "broker/place.h"
#include "doctor/finding.h"
#include "tugline/error.h"
#include "values.h"

namespace tugline::cli {
namespace {

std::string reason(int code) {
  return code < 0 ? "ended by a signal" : fmt::format("errno {} ({})", code, std::strerror(code));
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Makes a broker's directory with a socket in it, as a job would, and takes both away again.
Finding check_runtime_directory() {
  Finding finding{"runtime directory", Level::ok, "", ""};
  std::optional<broker::Place> place;
  broker::Made made;
  try {
    place = broker::place_of("", fmt::format("doctor-{}", ::getpid()));
    auto directory = broker::claim_directory(*place, &made);
    // No secret, but as long as one: a file system may have room for the names alone.
    broker::write_token(*place, directory.get(), std::string(2 * core::kTokenBytes, '0'));
    broker::listen_at(*place, directory.get());
    finding.evidence = fmt::format("{} is this user's alone and takes sockets, for example {}",
                                   broker::runtime_directory(), place->socket_path);
  } catch (const Error& error) {
    finding.level = Level::serious;
    finding.evidence = error.what_failed();
    finding.fix = error.what_to_do();
  }
  // With the lock gone it is like any that a broker left.
  if (place) broker::remove_if_dead(*place, made);
  return finding;
}

Finding check_dev_shm() {
  struct statvfs info {};
  Finding finding{"/dev/shm", Level::ok, "not there; not needed: shared memory comes from memfd_create", ""};
  if (::statvfs("/dev/shm", &info) == 0) {
    finding.evidence =
        fmt::format("{} in size; its size does not matter: shared memory comes from memfd_create",
                    human_bytes(static_cast<std::uint64_t>(info.f_blocks) * info.f_frsize));
  }
  return finding;
}

/// One child holds a pattern, its sibling reads it: neither is the other's parent, as among ranks.
int read_from_sibling() {
  static constexpr char kPattern[] = "tugline doctor";
  static char private_copy[sizeof kPattern];
  int to_holder[2];
  int from_holder[2];
  if (::pipe2(to_holder, O_CLOEXEC) != 0 || ::pipe2(from_holder, O_CLOEXEC) != 0) return errno;
  pid_t holder = ::fork();
  if (holder < 0) return errno;
  if (holder == 0) {
    ::close(to_holder[1]);
    std::memcpy(private_copy, kPattern, sizeof kPattern);
    char byte = 1;
    if (::write(from_holder[1], &byte, 1) != 1) ::_exit(1);
    // Stays until the reader is done: the end of the pipe says so.
    ::_exit(::read(to_holder[0], &byte, 1) == 0 ? 0 : 1);
  }
  char byte = 0;
  if (::read(from_holder[0], &byte, 1) != 1) return EPIPE;
  return try_in_child([holder] {
    char seen[sizeof kPattern] = {};
    iovec local{seen, sizeof seen};
    iovec remote{private_copy, sizeof private_copy};
    if (::process_vm_readv(holder, &local, 1, &remote, 1, 0) != sizeof seen) return errno;
    return std::memcmp(seen, kPattern, sizeof seen) == 0 ? 0 : EIO;
  });
}

Finding check_cross_memory() {
  Finding finding{"cross-memory reads", Level::ok, "process_vm_readv between two ranks works", ""};
  int code = try_in_child(read_from_sibling);
  std::string scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
  if (!scope.empty()) finding.evidence += fmt::format(" (yama ptrace_scope {})", scope);
  if (code != 0) {
    finding.level = Level::note;
    finding.evidence = fmt::format("process_vm_readv between two ranks fails: {}{}", reason(code),
                                   scope.empty() ? "" : fmt::format("; yama ptrace_scope is {}", scope));
    finding.fix =
        "not needed, only faster for large private buffers: sysctl kernel.yama.ptrace_scope=0, or "
        "--cap-add SYS_PTRACE for the container; or use buffers that the library allocates";
  }
  return finding;
}

Finding check_namespaces() {
  Finding finding{"namespaces", Level::ok, "a process may make its own PID and IPC namespaces", ""};
  int code = try_in_child([] {
    // Root needs no user namespace, and a container may forbid just that one.
    if (::unshare(CLONE_NEWPID | CLONE_NEWIPC) == 0) return 0;
    return ::unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWIPC) == 0 ? 0 : errno;
  });
  if (code != 0) {
    finding.level = Level::note;
    finding.evidence = fmt::format("unshare of PID and IPC namespaces fails: {}", reason(code));
    finding.fix = "only tests of ranks in separate containers need it; jobs do not";
  }
  return finding;
}

}  // namespace

std::vector<Finding> check_places() {
  return {check_runtime_directory(), check_dev_shm(), check_cross_memory(), check_namespaces()};
}

}  // namespace tugline::cli

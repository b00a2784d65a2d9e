// SPDX-License-Identifier: Apache-2.0
// The kernel: version, and each feature by trying it.
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/kernel.h"
#include "base/settings.h"
#include "base/unique_fd.h"
#include "doctor/finding.h"

// Younger than the oldest headers that the project is built with; the numbers are the kernel's ABI.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

namespace tugline::cli {
namespace {

std::string reason(int code) {
  return fmt::format("errno {} ({})", code, std::strerror(code));
}

Finding check_version() {
  utsname name{};
  ::uname(&name);
  Finding finding{"kernel", Level::ok, fmt::format("{} {} on {}", name.sysname, name.release, name.machine),
                  ""};
  if (!base::version_at_least(name.release, "", base::kOldestKernelMajor, base::kOldestKernelMinor)) {
    finding.level = Level::serious;
    finding.fix = fmt::format("tugline is made for Linux {}.{} and newer: update the kernel",
                              base::kOldestKernelMajor, base::kOldestKernelMinor);
  }
  if (const auto& asked = base::settings().kernel; !asked.empty()) {
    finding.evidence += fmt::format("; TUGLINE_KERNEL={} switches newer features off", asked);
  }
  return finding;
}

Finding check_sealed_memory() {
  Finding finding{"sealed memory", Level::ok, "memfd_create and F_ADD_SEALS work", ""};
  base::UniqueFd memory(::memfd_create("tugline-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory || ::ftruncate(memory.get(), 4096) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    finding.level = Level::serious;
    finding.evidence = "memfd_create or its seals fail: " + reason(errno);
    finding.fix = "allow memfd_create and fcntl(F_ADD_SEALS) in the container's seccomp profile";
  }
  return finding;
}

Finding check_pidfd() {
  Finding finding{"pidfd", Level::ok, "pidfd_open works", ""};
  base::UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!process) {
    finding.level = Level::serious;
    finding.evidence = "pidfd_open fails: " + reason(errno);
    finding.fix = "allow pidfd_open in the container's seccomp profile";
  }
  return finding;
}

Finding check_populate() {
  Finding finding{"populate", Level::ok, "MADV_POPULATE_WRITE works", ""};
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int code = page == MAP_FAILED || ::madvise(page, 4096, MADV_POPULATE_WRITE) != 0 ? errno : 0;
  if (page != MAP_FAILED) ::munmap(page, 4096);
  if (code != 0) {
    finding.level = Level::note;
    finding.evidence = "MADV_POPULATE_WRITE is not there: " + reason(code);
    finding.fix = "Linux 5.14 has it; until then pages are touched one by one, which is slower at start";
  } else if (!base::kernel_at_least(5, 14)) {
    finding.evidence += ", but is switched off";
  }
  return finding;
}

Finding check_futex_waitv() {
  Finding finding{"futex_waitv", Level::ok, "futex_waitv works", ""};
  // No waiters at all: a kernel that knows the call says EINVAL.
  long result = ::syscall(SYS_futex_waitv, nullptr, 0, 0, nullptr, 0);
  if (result < 0 && errno != EINVAL) {
    finding.level = Level::note;
    finding.evidence = "futex_waitv is not there: " + reason(errno);
    finding.fix =
        "Linux 5.16 has it, some seccomp profiles refuse it; sleeping waits then watch one word only";
  } else if (!base::kernel_at_least(5, 16)) {
    finding.evidence += ", but is switched off";
  }
  return finding;
}

Finding check_membarrier() {
  Finding finding{"membarrier", Level::ok, "", ""};
  long commands = ::syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  if (commands < 0) {
    finding.level = Level::note;
    finding.evidence = "membarrier is not there: " + reason(errno);
    finding.fix = "allow membarrier in the container's seccomp profile; full fences are used instead";
  } else {
    bool expedited = (commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0;
    finding.evidence = fmt::format("membarrier works (commands {:#x}{})", commands,
                                   expedited ? ", expedited between processes" : "");
  }
  return finding;
}

}  // namespace

std::vector<Finding> check_kernel() {
  return {check_version(),  check_sealed_memory(), check_pidfd(),
          check_populate(), check_futex_waitv(),   check_membarrier()};
}

}  // namespace tugline::cli

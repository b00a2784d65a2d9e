// SPDX-License-Identifier: Apache-2.0
// Descriptors, sizes of files, locked memory, the control group, cores.
#include <fmt/format.h>
#include <sys/resource.h>

#include <fstream>
#include <optional>
#include <sstream>

#include "base/cgroup.h"
#include "base/count.h"
#include "base/settings.h"
#include "doctor/finding.h"
#include "launch/machine.h"
#include "values.h"

namespace tugline::cli {
namespace {

std::string shown(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : fmt::format("{}", static_cast<std::uint64_t>(limit));
}

Finding check_descriptors(int ranks) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto need = descriptors_needed(ranks);
  Finding finding{
      "descriptors", Level::ok,
      fmt::format("{} open descriptors allowed ({} at most); {} of them for {}", shown(limit.rlim_cur),
                  shown(limit.rlim_max), need, base::counted(ranks, "rank")),
      ""};
  if (limit.rlim_max < need) {
    finding.level = Level::serious;
    finding.fix = fmt::format(
        "raise the hard limit: `ulimit -Hn {}`, nofile in /etc/security/limits.conf, "
        "or LimitNOFILE= of the service",
        need);
  } else if (limit.rlim_cur < need) {
    finding.level = Level::note;
    finding.fix = fmt::format("`ulimit -n {}` (tugline run raises its own limit up to the hard one)", need);
  }
  return finding;
}

Finding check_file_size(int ranks) {
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const auto need = file_bytes_needed(ranks);
  Finding finding{"file size", Level::ok,
                  fmt::format("files may have {} bytes ({} at most); shared memory of {} ranks needs {}",
                              shown(limit.rlim_cur), shown(limit.rlim_max), ranks, need),
                  ""};
  if (limit.rlim_cur < need) {
    finding.level = Level::serious;
    finding.fix =
        "raise the limit, which holds for shared memory too: `ulimit -f unlimited`, fsize in "
        "/etc/security/limits.conf, or LimitFSIZE= of the service";
  }
  return finding;
}

Finding check_memlock() {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  Finding finding{"memlock", Level::ok, "", ""};
  finding.evidence =
      limit.rlim_cur == RLIM_INFINITY
          ? "locked memory is unlimited"
          : fmt::format(
                "{} of locked memory allowed; this version locks none; GPUs and other hosts will pin buffers",
                human_bytes(limit.rlim_cur));
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < (64U << 20U)) {
    finding.level = Level::note;
    finding.fix = "before buffers are pinned: `ulimit -l unlimited`, or LimitMEMLOCK=infinity of the service";
  }
  return finding;
}

Finding check_cgroup_memory(int ranks) {
  std::uint64_t scratch = base::settings().scratch_bytes;
  // Scratch of one communicator and a process of a small C++ program.
  std::uint64_t need = static_cast<std::uint64_t>(ranks) * (scratch + (4U << 20U));
  auto group = base::read_cgroup_memory();
  auto host = base::host_memory_free();
  Finding finding{"memory", Level::ok, "", ""};
  std::optional<std::uint64_t> free = host;
  if (group) {
    finding.evidence = fmt::format("control group allows {}, {} of it free", human_bytes(group->limit_bytes),
                                   human_bytes(group->free_bytes));
    if (!free || group->free_bytes < *free) free = group->free_bytes;
  } else {
    finding.evidence = "no limit by a control group";
  }
  if (host) finding.evidence += fmt::format("; host has {} free", human_bytes(*host));
  finding.evidence += fmt::format("; {} with {} of scratch each: {}", base::counted(ranks, "rank"),
                                  human_bytes(scratch), human_bytes(need));
  if (free && *free < need) {
    finding.level = Level::serious;
    finding.fix = "raise the control group's memory limit, start fewer ranks, or lower TUGLINE_SCRATCH_BYTES";
  }
  return finding;
}

/// Cores' worth of time that the control group allows; none without a quota.
std::optional<double> cpu_quota() {
  double quota = 0;
  double period = 0;
  std::ifstream unified("/sys/fs/cgroup/cpu.max");
  if (unified >> quota >> period && period > 0) return quota / period;
  std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (quota_file >> quota && period_file >> period && quota > 0 && period > 0) return quota / period;
  return std::nullopt;
}

Finding check_cores(int ranks) {
  auto cores = static_cast<int>(allowed_cpus().size());
  auto quota = cpu_quota();
  Finding finding{"cores", Level::ok,
                  fmt::format("{} for {}", base::counted(cores, "core"), base::counted(ranks, "rank")), ""};
  if (quota) finding.evidence += fmt::format("; the control group grants {:.2f} cores of time", *quota);
  if (ranks > cores) {
    finding.level = Level::note;
    finding.fix = fmt::format(
        "ranks take turns, and small operations take tens of microseconds: start at most "
        "{} for best latency",
        base::counted(cores, "rank"));
  } else if (quota && *quota < ranks) {
    finding.level = Level::note;
    finding.fix =
        "raise the CPU quota (cpu.max) to at least one core per rank: throttled ranks stall all others";
  }
  return finding;
}

}  // namespace

std::vector<Finding> check_limits(int ranks) {
  return {check_cores(ranks), check_cgroup_memory(ranks), check_descriptors(ranks), check_file_size(ranks),
          check_memlock()};
}

}  // namespace tugline::cli

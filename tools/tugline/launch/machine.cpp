// SPDX-License-Identifier: Apache-2.0
#include "launch/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "base/count.h"
#include "base/settings.h"
#include "comm/layout.h"
#include "core/control.h"
#include "tugline/error.h"

namespace tugline::cli {

std::vector<int> allowed_cpus() {
  // The kernel refuses a set that is smaller than its own; grow until it fits.
  for (int count = 1024; count <= (1 << 20); count *= 4) {
    struct Free {
      void operator()(cpu_set_t* set) const noexcept { CPU_FREE(set); }
    };
    std::unique_ptr<cpu_set_t, Free> set(CPU_ALLOC(static_cast<std::size_t>(count)));
    std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(count));
    CPU_ZERO_S(bytes, set.get());
    if (::sched_getaffinity(0, bytes, set.get()) != 0) {
      if (errno == EINVAL) continue;
      break;
    }
    std::vector<int> cpus;
    for (int cpu = 0; cpu < count; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set.get())) cpus.push_back(cpu);
    }
    if (!cpus.empty()) return cpus;
    break;
  }
  throw Error(ErrorCode::system, "cannot read which cores this process may use",
              "check the container's cpuset", {.native_code = errno});
}

rlim_t descriptors_needed(int ranks) noexcept {
  // Standard streams, signals, a pipe per start, what the caller left open; the broker's own and its reserve.
  constexpr rlim_t kOwn = 32;
  return kOwn + 2 * static_cast<rlim_t>(ranks);
}

void require_descriptors(int ranks) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max >= descriptors_needed(ranks)) return;
  throw Error(
      ErrorCode::out_of_memory, Remedy::fix_call,
      fmt::format("{} open descriptors are needed for {}, {} are allowed", descriptors_needed(ranks),
                  base::counted(ranks, "rank"), limit.rlim_max),
      fmt::format("raise the limit (ulimit -Hn {}), or start fewer ranks", descriptors_needed(ranks)));
}

std::uint64_t file_bytes_needed(int ranks) {
  const auto size = static_cast<std::uint32_t>(ranks);
  const auto scratch = comm::rank_scratch_bytes(size, base::settings().scratch_bytes);
  const auto bank = comm::BankLayout::make(size, scratch, comm::pair_scratch_bytes(size));
  return std::max<std::uint64_t>({bank.total, sizeof(comm::Board), sizeof(core::ControlSegment)});
}

void require_file_size(int ranks) {
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const auto need = file_bytes_needed(ranks);
  if (limit.rlim_cur >= need) return;
  throw Error(ErrorCode::out_of_memory, Remedy::fix_call,
              fmt::format("{} bytes of shared memory are needed for {} {}, files may have {} (ulimit -f)",
                          need, ranks, ranks == 1 ? "rank" : "ranks", limit.rlim_cur),
              "raise the limit (ulimit -f unlimited), start fewer ranks, or lower TUGLINE_SCRATCH_BYTES");
}

DescriptorRoom::DescriptorRoom(int ranks) {
  require_descriptors(ranks);
  ::getrlimit(RLIMIT_NOFILE, &before_);
  const auto need = descriptors_needed(ranks);
  if (before_.rlim_cur >= need) return;
  rlimit raised{need, before_.rlim_max};
  if (::setrlimit(RLIMIT_NOFILE, &raised) != 0) {
    throw Error(ErrorCode::system, fmt::format("cannot raise the limit of open descriptors to {}", need),
                "start fewer ranks", {.native_code = errno});
  }
}

bool same_file(int left, int right) noexcept {
  struct stat a {};
  struct stat b {};
  return ::fstat(left, &a) == 0 && ::fstat(right, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool use_colour(int descriptor) noexcept {
  const char* variable = std::getenv("NO_COLOR");
  return ::isatty(descriptor) == 1 && (variable == nullptr || *variable == '\0');
}

}  // namespace tugline::cli

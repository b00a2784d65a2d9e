// SPDX-License-Identifier: Apache-2.0
// How long after a SIGKILL the death is noticed, for victims of several sizes, and when their process has
// ended for comparison. Prints p50 and max; what is asserted is that the lifeline noticed, before the end of
// a large process, not how fast: that depends on who else uses the machine.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <new>
#include <vector>

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/futex.h"
#include "broker/lifeline.h"
#include "support.h"

namespace tugline::broker {
namespace {

using testing::Child;
using testing::eventually;
using namespace std::chrono_literals;

struct VictimSize {
  const char* name;
  std::size_t bytes;
  int kills;
};

void PrintTo(const VictimSize& size, std::ostream* out) {
  *out << size.name;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kFewer = 5;  // the figures of a sanitizer build say nothing
#else
constexpr int kFewer = 1;
#endif

class LifelineTimingTest : public ::testing::TestWithParam<VictimSize> {};

double milliseconds(std::uint64_t from_ns, std::uint64_t to_ns) {
  return to_ns > from_ns ? static_cast<double>(to_ns - from_ns) * 1e-6 : 0;
}

void print(const char* what, std::vector<double> times_ms) {
  std::sort(times_ms.begin(), times_ms.end());
  std::printf("  %s p50 %.3f max %.3f ms", what, times_ms[times_ms.size() / 2], times_ms.back());
}

TEST_P(LifelineTimingTest, IsNoticedByTheLifeline) {
  const auto [name, bytes, kills] = GetParam();
  if (base::host_memory_free().value_or(0) < 2 * bytes)
    GTEST_SKIP() << "the host has less than " << 2 * bytes << " bytes free";
  std::vector<double> noticed_ms;
  std::vector<double> woken_ms;
  std::vector<double> ended_ms;
  for (int kill = 0; kill < std::max(1, kills / kFewer); ++kill) {
    void* memory = ::mmap(nullptr, sizeof(core::ControlSegment), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    auto* control = new (memory) core::ControlSegment{};
    const auto live = [control](MemberId id) {
      control->members[id].status.store(
          core::MemberStatus{core::MemberState::joining, core::LossCause::none, 1}.encode());
      return std::make_unique<Lifeline>(*control, id, nullptr, -1, 20ms);
    };
    Child victim([&, size = bytes]() -> int {
      if (size > 0) {
        auto* ballast = static_cast<volatile char*>(
            ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        for (std::size_t at = 0; at < size; at += 4096) ballast[at] = 1;
      }
      const auto line = live(1);
      for (;;) ::pause();
    });
    ASSERT_TRUE(eventually([&] { return core::state_of(control->members[1]) == core::MemberState::alive; }));
    {
      const auto watcher = live(0);
      const auto start = base::monotonic_ns();
      victim.kill(SIGKILL);
      // A sleeper on the alarm, as a rank that waits in the library.
      while (control->alarm.load() == 0) base::futex_wait(control->alarm, 0, 10s);
      woken_ms.push_back(milliseconds(start, base::monotonic_ns()));
      noticed_ms.push_back(milliseconds(start, control->members[1].died_at_ns.load()));
      EXPECT_EQ(core::cause_of(control->members[1]), core::LossCause::lifeline);
      victim.wait();
      ended_ms.push_back(milliseconds(start, base::monotonic_ns()));
    }
    ::munmap(memory, sizeof(core::ControlSegment));
  }
  std::printf("[ measured ] victim of %s, n = %zu:", name, noticed_ms.size());
  print("noticed", noticed_ms);
  print("sleeper awake", woken_ms);
  print("process ended", ended_ms);
  std::printf("\n");
}

INSTANTIATE_TEST_SUITE_P(Sizes, LifelineTimingTest,
                         ::testing::Values(VictimSize{"0 MiB", 0, 40}, VictimSize{"64 MiB", 64U << 20U, 20},
                                           VictimSize{"512 MiB", 512U << 20U, 3},
                                           VictimSize{"1 GiB", 1U << 30U, 1}));

}  // namespace
}  // namespace tugline::broker

// SPDX-License-Identifier: Apache-2.0
#include "comm/wait.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/futex.h"
#include "base/log.h"
#include "base/settings.h"

namespace tugline::comm {
namespace {

// Polls without a pause before the clock is read for the first time: most packets are there by then.
constexpr int kEagerPolls = 2000;
// A sleeper looks up this often even if nobody rings: the alarm does not ring doorbells.
constexpr std::uint64_t kNapNanoseconds = 1'000'000;

std::uint64_t nanoseconds(std::chrono::nanoseconds duration) noexcept {
  return static_cast<std::uint64_t>(duration.count());
}

void report(const WaitPlace& place, const WaitSubject& subject, std::uint64_t waited_ns) {
  base::log(base::LogLevel::warn,
            "waiting for {} ms: {} of operation {} from rank {}, expected {}, seen {}{}",
            waited_ns / 1'000'000, subject.what, subject.sequence, subject.peer, subject.expected,
            subject.seen ? subject.seen->load(std::memory_order_relaxed) : 0,
            place.about_rank ? place.about_rank(subject.peer) : std::string());
}

}  // namespace

void ring(Doorbell& doorbell) noexcept {
  if (doorbell.sleeping.load(std::memory_order_acquire) == 0) return;
  doorbell.rings.fetch_add(1, std::memory_order_seq_cst);
  base::futex_wake(doorbell.rings, 1);
}

void register_for_naps() noexcept {
  (void)::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);
}

Nap::Nap(WaitPlace& place) noexcept
    : place_(place), rings_(place.doorbell->rings.load(std::memory_order_seq_cst)) {
  place_.sleepers->fetch_add(1, std::memory_order_seq_cst);
  place_.doorbell->sleeping.store(1, std::memory_order_seq_cst);
  (void)::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

Nap::~Nap() {
  place_.doorbell->sleeping.store(0, std::memory_order_relaxed);
  place_.sleepers->fetch_sub(1, std::memory_order_relaxed);
}

void Nap::sleep(std::uint64_t nanoseconds) noexcept {
  base::futex_wait(place_.doorbell->rings, rings_, std::chrono::nanoseconds(nanoseconds));
}

Status wait(WaitPlace& place, FunctionRef<Poll()> poll, AlarmCheck alarm,
            FunctionRef<WaitSubject()> subject) {
  const auto& alarm_word = place.control->alarm;
  auto check_alarm = [&]() -> Status {
    place.alarm_seen = alarm_word.load(std::memory_order_acquire);
    return alarm();
  };
  // What a rank wrote before it went may lie there unread: it counts.
  auto finish_anyway = [&] {
    Poll result = Poll::progressed;
    while (result == Poll::progressed) result = poll();
    return result == Poll::done;
  };
  const int eager = place.own_core ? kEagerPolls : 1;
  for (int i = 0; i < eager; ++i) {
    switch (poll()) {
      case Poll::done:
        return {};
      case Poll::progressed:
        i = 0;
        break;
      case Poll::blocked:
        break;
    }
    if (alarm_word.load(std::memory_order_acquire) != place.alarm_seen) {
      if (Status status = check_alarm(); !status.ok()) return finish_anyway() ? Status{} : status;
    }
  }

  const auto& settings = base::settings();
  const std::uint64_t began = base::monotonic_ns();
  const std::uint64_t spin_ns = std::uint64_t{settings.spin_us} * 1000;
  const std::uint64_t report_ns = nanoseconds(settings.report_after);
  const std::uint64_t fail_ns = nanoseconds(settings.fail_after);
  std::uint64_t since_progress = began;
  std::uint64_t next_report = began + report_ns;
  std::uint64_t next_look = began;
  for (;;) {
    Poll result = poll();
    if (result == Poll::done) return {};
    const std::uint64_t now = base::monotonic_ns();
    if (result == Poll::progressed) {
      since_progress = now;
      next_report = now + report_ns;
      continue;
    }
    // A rank may be gone without an alarm that we have seen: look for ourselves, but rarely.
    if (alarm_word.load(std::memory_order_acquire) != place.alarm_seen || now >= next_look) {
      next_look = now + kNapNanoseconds;
      if (Status status = check_alarm(); !status.ok()) return finish_anyway() ? Status{} : status;
    }
    if (report_ns != 0 && now >= next_report) {
      report(place, subject(), now - since_progress);
      next_report = now + report_ns;
    }
    if (fail_ns != 0 && now - since_progress >= fail_ns) {
      const WaitSubject about = subject();
      return {ErrorCode::timed_out, about.peer, 0, about.sequence};
    }
    if (now - since_progress < spin_ns) {
      if (place.own_core) {
        for (int i = 0; i < 16; ++i) relax();
      } else {
        sched_yield();
      }
      continue;
    }
    Nap nap(place);
    if ((result = poll()) == Poll::done) return {};
    if (result == Poll::progressed) {
      since_progress = now;
      continue;
    }
    if (alarm_word.load(std::memory_order_seq_cst) == place.alarm_seen) nap.sleep(kNapNanoseconds);
  }
}

}  // namespace tugline::comm

// SPDX-License-Identifier: Apache-2.0
#include "comm/wait.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

#include "base/clock.h"
#include "base/futex.h"
#include "base/settings.h"
#include "comm/late.h"
#include "comm/patience.h"
#include "comm/wait_note.h"

namespace tugline::comm {
namespace {

// Polls without a pause before the clock is read for the first time: most packets are there by then.
constexpr int kEagerPolls = 2000;
// The same of ranks that share cores, with a turn of the others between two polls.
constexpr int kEagerTurns = 4;
// A rank may be gone without an alarm: a waiter looks for itself, but rarely.
constexpr std::uint64_t kLookEvery = 1'000'000;

}  // namespace

void give_way(bool own_core) noexcept {
  if (!own_core) {
    sched_yield();
    return;
  }
  for (int i = 0; i < 16; ++i) relax();
}

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
  const base::FutexWord words[] = {{&place_.doorbell->rings, rings_},
                                   {&place_.control->alarm, place_.alarm_seen}};
  base::futex_wait_any(words, std::chrono::nanoseconds(nanoseconds));
}

void Nap::sleep_any(std::span<const std::unique_ptr<Nap>> naps, std::uint64_t nanoseconds) {
  std::vector<base::FutexWord> words;
  for (const auto& nap : naps) words.push_back({&nap->place_.doorbell->rings, nap->rings_});
  for (const auto& nap : naps) words.push_back({&nap->place_.control->alarm, nap->place_.alarm_seen});
  base::futex_wait_any(words, std::chrono::nanoseconds(nanoseconds));
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
  const int eager = place.own_core ? kEagerPolls : kEagerTurns;
  for (int i = 0; i < eager; ++i) {
    switch (poll()) {
      case Poll::done:
        return {};
      case Poll::progressed:
        i = 0;
        break;
      case Poll::blocked:
        if (!place.own_core) give_way(place.own_core);
        break;
    }
    if (alarm_word.load(std::memory_order_acquire) != place.alarm_seen) {
      if (Status status = check_alarm(); !status.ok()) return finish_anyway() ? Status{} : status;
    }
  }

  base::RunningClock clock;
  Patience patience(base::settings(), place.own_core, clock.read(base::monotonic_ns()));
  PublishedWait published;
  std::uint64_t next_look = 0;
  for (;;) {
    Poll result = poll();
    if (result == Poll::done) return {};
    const std::uint64_t moment = base::monotonic_ns();
    const std::uint64_t now = clock.read(moment);
    if (result == Poll::progressed) {
      patience.moved(now);
      published.withdraw();
      continue;
    }
    if (alarm_word.load(std::memory_order_acquire) != place.alarm_seen || now >= next_look) {
      next_look = now + kLookEvery;
      if (patience.is_long(now)) published.publish(place, subject(), moment - patience.waited(now));
      if (Status status = check_alarm(); !status.ok()) return finish_anyway() ? Status{} : status;
    }
    if (patience.report_is_due(now)) report_wait(place, subject(), patience.waited(now));
    if (patience.is_over(now)) {
      const WaitSubject about = subject();
      published.time_out(moment);
      return {ErrorCode::timed_out, about.peer, 0, about.sequence};
    }
    if (patience.may_spin(now)) {
      give_way(place.own_core);
      continue;
    }
    Nap nap(place);
    if ((result = poll()) == Poll::done) return {};
    if (result == Poll::progressed) {
      patience.moved(now);
      published.withdraw();
      continue;
    }
    nap.sleep(patience.nap(now));
  }
}

}  // namespace tugline::comm

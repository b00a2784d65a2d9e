// SPDX-License-Identifier: Apache-2.0
#include "broker/lifeline.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <exception>
#include <future>
#include <string>

#include "base/clock.h"
#include "base/futex.h"
#include "base/log.h"
#include "base/settings.h"
#include "broker/process_status.h"
#include "broker/robust_word.h"
#include "tugline/error.h"

namespace tugline::broker {
namespace {

using base::LogLevel;
using core::LossCause;
using core::MemberState;

/// Room for formatting a log line; sanitizers need more than the minimum.
constexpr std::size_t kStackBytes = 256 * 1024;
/// Ticks without a sign of life after which a neighbour's process is looked at.
constexpr int kQuietTicks = 2;
/// How often stop_and_leave() repeats its wake-up, which may come just before the thread falls asleep.
constexpr std::chrono::microseconds kWakeAgain{200};

}  // namespace

void raise_alarm(core::ControlSegment& control) noexcept {
  control.alarm.fetch_add(1, std::memory_order_acq_rel);
  base::futex_wake(control.alarm);
}

/// The thread and what it shares with its owner.
class Lifeline::Watch {
 public:
  Watch(core::ControlSegment& control, MemberId self, std::shared_ptr<void> keep_mapped, int broker_socket,
        std::chrono::nanoseconds heartbeat)
      : control_(control),
        self_(self),
        keep_mapped_(std::move(keep_mapped)),
        broker_socket_(broker_socket),
        heartbeat_(heartbeat),
        identity_(own_identity()) {
    start();
  }

  bool belongs_to_this_process() const noexcept {
    return identity_.pid == static_cast<std::uint32_t>(::getpid());
  }

  void stop() noexcept {
    if (!belongs_to_this_process() || stop_.exchange(1) != 0) return;
    while (finished_.load() == 0) {
      base::futex_wake(*waiting_on_.load());
      base::futex_wait(finished_, 0, kWakeAgain);
    }
    ::pthread_join(thread_, nullptr);
  }

 private:
  void start() {
    sigset_t all;
    sigset_t former;
    ::sigfillset(&all);
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, kStackBytes);
    // The thread inherits the mask: no handler of the application ever runs on it.
    ::pthread_sigmask(SIG_SETMASK, &all, &former);
    const int problem = ::pthread_create(
        &thread_, &attributes,
        [](void* watch) -> void* {
          static_cast<Watch*>(watch)->run();
          return nullptr;
        },
        this);
    ::pthread_sigmask(SIG_SETMASK, &former, nullptr);
    ::pthread_attr_destroy(&attributes);
    if (problem != 0) {
      ErrorContext context;
      context.native_code = problem;
      throw Error(ErrorCode::out_of_memory, "no thread could be started for the lifeline",
                  "raise the limit of processes (ulimit -u, pids.max of the cgroup)", std::move(context));
    }
    try {
      held_.get_future().get();
    } catch (...) {
      ::pthread_join(thread_, nullptr);
      throw;
    }
  }

  void run() noexcept {
    ::pthread_setname_np(::pthread_self(), "tugline-life");
    auto& slot = control_.members[self_];
    bool holding = false;
    try {
      RobustWord lifeline(slot.lifeline);
      slot.pid_namespace.store(identity_.pid_namespace, std::memory_order_relaxed);
      slot.pid.store(identity_.pid, std::memory_order_release);
      core::change_state(slot, MemberState::joining, MemberState::alive);
      // Who watched my neighbour so far watches me from now on, not from its next tick on.
      if (const auto neighbour = next_living(); neighbour != self_)
        base::futex_wake(control_.members[neighbour].lifeline);
      holding = true;
      held_.set_value();
      while (stop_.load() == 0) watch_once();
      core::change_state(slot, MemberState::alive, MemberState::left);
    } catch (const std::exception& failure) {
      if (!holding) {
        held_.set_exception(std::current_exception());
        return;
      }
      // Without its lifeline this member would die unseen: better that all see it as dead now.
      base::log(LogLevel::error, "lifeline of member {} ended: {}", self_, failure.what());
      if (core::mark_dead(slot, LossCause::removed, base::monotonic_ns())) raise_alarm(control_);
    }
    // The watcher picks its next neighbour now instead of at its next tick.
    base::futex_wake(slot.lifeline);
    finished_.store(1);
    base::futex_wake(finished_);
  }

  void watch_once() {
    tick();
    look_at_broker();
    const auto neighbour = next_living();
    if (neighbour == self_) {
      sleep_on(stop_, 0);
      return;
    }
    auto& slot = control_.members[neighbour];
    // First who it is, then the evidence: a mark cannot hit the slot's next member.
    const auto seen = core::status_of(slot);
    const auto word = slot.lifeline.load(std::memory_order_acquire);
    if (owner_died(word)) {
      declare_dead(neighbour, seen, LossCause::lifeline);
      return;
    }
    if (sleep_on(slot.lifeline, word) == base::WaitResult::timed_out) look_after(neighbour, seen);
  }

  base::WaitResult sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t expected) {
    waiting_on_.store(&word);
    if (stop_.load() != 0) return base::WaitResult::changed;
    return base::futex_wait(word, expected, heartbeat_);
  }

  void tick() noexcept {
    const auto now = base::monotonic_ns();
    on_time_ = now - last_tick_ns_ < 2 * static_cast<std::uint64_t>(heartbeat_.count());
    last_tick_ns_ = now;
    control_.members[self_].ticked_at_ns.store(now, std::memory_order_relaxed);
    control_.members[self_].heartbeat.fetch_add(1, std::memory_order_release);
  }

  /// The next member around the ring that is alive; `self_` when there is none.
  MemberId next_living() const noexcept {
    for (std::uint32_t step = 1; step < core::kMaxMembers; ++step) {
      const auto id = (self_ + step) % core::kMaxMembers;
      if (core::state_of(control_.members[id]) == MemberState::alive) return id;
    }
    return self_;
  }

  void declare_dead(MemberId id, core::MemberStatus seen, LossCause cause) noexcept {
    auto& slot = control_.members[id];
    if (!core::mark_dead(slot, seen, cause, base::monotonic_ns())) return;
    raise_alarm(control_);
    base::log(LogLevel::info, "member {} (rank {}) is dead: {}", id, slot.rank.load(),
              cause == LossCause::core_dump ? "it is dumping core" : "its lifeline broke");
  }

  /// Called when a whole tick went by without news of the neighbour's lifeline.
  void look_after(MemberId id, core::MemberStatus seen) noexcept {
    auto& slot = control_.members[id];
    const auto beat = slot.heartbeat.load(std::memory_order_acquire);
    if (id != watched_ || seen != watched_status_ || beat != last_beat_) {
      watched_ = id;
      watched_status_ = seen;
      last_beat_ = beat;
      quiet_ticks_ = 0;
      reported_ = false;
      return;
    }
    if (++quiet_ticks_ < kQuietTicks) return;
    quiet_ticks_ = 0;
    inspect(id, seen);
  }

  void inspect(MemberId id, core::MemberStatus seen) noexcept {
    auto& slot = control_.members[id];
    const auto pid = slot.pid.load(std::memory_order_acquire);
    const auto space = slot.pid_namespace.load(std::memory_order_relaxed);
    const bool visible = space != 0 && space == identity_.pid_namespace;
    const auto condition = visible ? condition_of(pid) : ProcessCondition::unknown;
    // Needs no second opinion: a process that dumps core runs no instruction any more. Its other members
    // (ranks as threads) died with it.
    if (condition == ProcessCondition::core_dumping) {
      for (MemberId other = 0; other < core::kMaxMembers; ++other) {
        auto& member = control_.members[other];
        const auto status = other == id ? seen : core::status_of(member);
        if (member.pid_namespace.load() == space && member.pid.load() == pid)
          declare_dead(other, status, LossCause::core_dump);
      }
      return;
    }
    // Who is late himself accuses nobody.
    if (reported_ || !on_time_) return;
    reported_ = true;
    if (condition == ProcessCondition::stopped || condition == ProcessCondition::traced)
      base::log(LogLevel::warn, "rank {} (pid {}) is stopped or traced: it will be waited for",
                slot.rank.load(), pid);
    else if (!visible)
      base::log(LogLevel::info, "rank {} has not ticked for {} ms; its process is in another PID namespace",
                slot.rank.load(), silence_ms());
    else
      base::log(LogLevel::info, "rank {} (pid {}) has not ticked for {} ms", slot.rank.load(), pid,
                silence_ms());
  }

  std::int64_t silence_ms() const noexcept {
    return std::chrono::duration_cast<std::chrono::milliseconds>(kQuietTicks * heartbeat_).count();
  }

  void look_at_broker() noexcept {
    if (broker_socket_ < 0) return;
    pollfd socket{broker_socket_, 0, 0};
    if (::poll(&socket, 1, 0) <= 0 || (socket.revents & (POLLHUP | POLLERR | POLLNVAL)) == 0) return;
    // A broker that turns a member out may shut its socket just before it marks the slot; a broker that is
    // gone still is at the next tick.
    if (!hung_up_) {
      hung_up_ = true;
      return;
    }
    broker_socket_ = -1;
    if (stop_.load() != 0 || core::is_gone(control_.members[self_])) return;
    std::uint32_t none = 0;
    if (!control_.broker_lost.compare_exchange_strong(none, 1)) return;
    raise_alarm(control_);
    base::log(LogLevel::warn, "the broker is gone");
  }

  core::ControlSegment& control_;
  const MemberId self_;
  std::shared_ptr<void> keep_mapped_;
  int broker_socket_;
  const std::chrono::nanoseconds heartbeat_;
  const ProcessIdentity identity_;

  pthread_t thread_{};
  std::promise<void> held_;
  std::atomic<std::uint32_t> stop_{0};
  std::atomic<std::uint32_t> finished_{0};
  std::atomic<std::atomic<std::uint32_t>*> waiting_on_{&stop_};

  // The thread's own.
  std::uint64_t last_tick_ns_ = 0;
  bool on_time_ = false;
  bool hung_up_ = false;
  MemberId watched_ = core::kMaxMembers;
  core::MemberStatus watched_status_;
  std::uint64_t last_beat_ = 0;
  int quiet_ticks_ = 0;
  bool reported_ = false;
};

Lifeline::Lifeline(core::ControlSegment& control, MemberId self, std::shared_ptr<void> keep_mapped,
                   int broker_socket, std::chrono::nanoseconds heartbeat)
    : watch_(std::make_unique<Watch>(control, self, std::move(keep_mapped), broker_socket, heartbeat)) {}

Lifeline::Lifeline(core::ControlSegment& control, MemberId self, std::shared_ptr<void> keep_mapped,
                   int broker_socket)
    : Lifeline(control, self, std::move(keep_mapped), broker_socket,
               std::chrono::milliseconds(base::settings().heartbeat_ms)) {}

Lifeline::~Lifeline() {
  stop_and_leave();
}

void Lifeline::stop_and_leave() noexcept {
  watch_->stop();
}

}  // namespace tugline::broker

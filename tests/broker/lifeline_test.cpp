// SPDX-License-Identifier: Apache-2.0
// Lifelines of real processes that end in every way a process can end, and of some that do not.
#include "broker/lifeline.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <new>
#include <thread>

#include "base/clock.h"
#include "base/futex.h"
#include "broker/process_status.h"
#include "broker/robust_word.h"
#include "support.h"

namespace tugline::broker {
namespace {

using core::LossCause;
using core::MemberState;
using testing::Child;
using testing::eventually;
using testing::Gate;
using namespace std::chrono_literals;

constexpr auto kHeartbeat = 20ms;

class LifelineTest : public ::testing::Test {
 protected:
  LifelineTest() {
    void* memory = ::mmap(nullptr, sizeof(core::ControlSegment), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    control_ = new (memory) core::ControlSegment{};
  }
  ~LifelineTest() override { ::munmap(control_, sizeof *control_); }

  core::MemberSlot& slot(MemberId id) { return control_->members[id]; }
  MemberState state(MemberId id) { return core::state_of(slot(id)); }

  /// As the broker does when it accepts a member.
  void accept(MemberId id) {
    slot(id).rank = id;
    slot(id).status.store(core::MemberStatus{MemberState::joining, LossCause::none, 1}.encode());
  }
  std::unique_ptr<Lifeline> live(MemberId id, int broker_socket = -1) {
    accept(id);
    return std::make_unique<Lifeline>(*control_, id, nullptr, broker_socket, kHeartbeat);
  }
  /// A child that lives as `ids` until somebody ends it.
  std::unique_ptr<Child> child(std::vector<MemberId> ids, std::function<int()> then = {}) {
    auto result = std::make_unique<Child>([this, ids, then] {
      std::vector<std::unique_ptr<Lifeline>> lines;
      for (auto id : ids) lines.push_back(live(id));
      if (then) return then();
      for (;;) ::pause();
    });
    for (auto id : ids) EXPECT_TRUE(eventually([&] { return state(id) == MemberState::alive; }));
    return result;
  }
  bool alarm_rises_from(std::uint32_t before) {
    return eventually([&] { return control_->alarm.load() != before; });
  }
  /// Several ticks, counted on the member's own word.
  void let_tick(MemberId id, std::uint64_t ticks) {
    const auto start = slot(id).heartbeat.load();
    EXPECT_TRUE(eventually([&] { return slot(id).heartbeat.load() >= start + ticks; }));
  }

  core::ControlSegment* control_;
};

TEST_F(LifelineTest, HoldsItsWordTicksAndLeavesWithoutFiring) {
  auto line = live(3);
  EXPECT_EQ(state(3), MemberState::alive);
  EXPECT_NE(slot(3).lifeline.load() & FUTEX_TID_MASK, 0u);
  EXPECT_NE(slot(3).lifeline.load() & FUTEX_WAITERS, 0u);
  EXPECT_EQ(slot(3).pid.load(), static_cast<std::uint32_t>(::getpid()));
  let_tick(3, 3);
  line->stop_and_leave();
  line->stop_and_leave();
  EXPECT_EQ(state(3), MemberState::left);
  EXPECT_EQ(slot(3).lifeline.load(), 0u);
  EXPECT_EQ(control_->alarm.load(), 0u);
}

TEST_F(LifelineTest, AMemberThatLeavesIsNotMournedAndTheRingCloses) {
  auto third = child({2});
  auto first = live(0);
  {
    auto second = live(1);
    let_tick(0, 3);
  }
  let_tick(0, 3);
  EXPECT_EQ(state(1), MemberState::left);
  EXPECT_EQ(control_->alarm.load(), 0u);
  third->kill(SIGKILL);
  EXPECT_TRUE(alarm_rises_from(0));
  EXPECT_EQ(state(2), MemberState::dead);
}

TEST_F(LifelineTest, AKilledMemberIsMarkedDeadByItsNeighbour) {
  auto victim = child({1});
  auto watcher = live(0);
  victim->kill(SIGKILL);
  EXPECT_TRUE(alarm_rises_from(0));
  EXPECT_EQ(state(1), MemberState::dead);
  EXPECT_EQ(core::cause_of(slot(1)), LossCause::lifeline);
  EXPECT_TRUE(owner_died(slot(1).lifeline.load()));
  EXPECT_NE(slot(1).died_at_ns.load(), 0u);
  EXPECT_EQ(control_->alarm.load(), 1u);
  EXPECT_EQ(state(0), MemberState::alive);
}

TEST_F(LifelineTest, AProcessThatExitsWithoutGoodByeIsDead) {
  Gate go;
  auto victim = child({1}, [&]() -> int {
    go.wait();
    ::_exit(0);
  });
  auto watcher = live(0);
  go.open();
  EXPECT_TRUE(alarm_rises_from(0));
  EXPECT_EQ(core::cause_of(slot(1)), LossCause::lifeline);
  EXPECT_EQ(victim->wait(), 0);
}

TEST_F(LifelineTest, AProcessThatBecomesAnotherProgramIsDead) {
  Gate go;
  auto victim = child({1}, [&] {
    go.wait();
    ::execl("/bin/sleep", "sleep", "20", nullptr);
    return 1;
  });
  auto watcher = live(0);
  go.open();
  EXPECT_TRUE(alarm_rises_from(0));
  EXPECT_EQ(core::cause_of(slot(1)), LossCause::lifeline);
}

TEST_F(LifelineTest, NeighboursThatDieTogetherAreAllFound) {
  std::vector<std::unique_ptr<Child>> victims;
  for (MemberId id : {1u, 2u, 4u}) victims.push_back(child({id}));
  auto survivor = child({3});
  auto watcher = live(0);
  for (auto& victim : victims) victim->kill(SIGKILL);
  EXPECT_TRUE(eventually([&] { return control_->alarm.load() == 3; }));
  for (MemberId id : {1u, 2u, 4u}) EXPECT_EQ(core::cause_of(slot(id)), LossCause::lifeline) << id;
  EXPECT_EQ(state(3), MemberState::alive);
  EXPECT_EQ(state(0), MemberState::alive);
}

TEST_F(LifelineTest, RanksThatAreThreadsOfOneProcessDieTogether) {
  auto victim = child({1, 2, 3});
  auto watcher = live(0);
  victim->kill(SIGKILL);
  EXPECT_TRUE(eventually([&] { return control_->alarm.load() == 3; }));
  for (MemberId id : {1u, 2u, 3u}) EXPECT_EQ(state(id), MemberState::dead) << id;
}

TEST_F(LifelineTest, AForkedChildChangesNothing) {
  auto neighbour = child({1});
  auto line = live(0);
  for (int way = 0; way < 3; ++way) {
    Child forked([&]() -> int {
      if (way == 0) ::pause();
      if (way == 1) line.reset();  // runs the destructors of its copies
      return 0;
    });
    if (way == 0) forked.kill(SIGKILL);
    forked.wait();
    let_tick(0, 3);
    let_tick(1, 3);
    EXPECT_EQ(state(0), MemberState::alive) << "way " << way;
    EXPECT_EQ(control_->alarm.load(), 0u) << "way " << way;
  }
}

TEST_F(LifelineTest, AStoppedMemberIsWaitedFor) {
  auto victim = child({1});
  auto watcher = live(0);
  victim->kill(SIGSTOP);
  EXPECT_TRUE(eventually([&] { return condition_of(victim->pid()) == ProcessCondition::stopped; }));
  let_tick(0, 10);
  EXPECT_EQ(state(1), MemberState::alive);
  EXPECT_EQ(control_->alarm.load(), 0u);
  victim->kill(SIGCONT);
  let_tick(1, 3);
  // Its death is still seen at once, stopped or not.
  victim->kill(SIGSTOP);
  victim->kill(SIGKILL);
  EXPECT_TRUE(alarm_rises_from(0));
  EXPECT_EQ(state(1), MemberState::dead);
}

TEST_F(LifelineTest, TheEndOfTheBrokersSocketIsToldToEverybody) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  base::UniqueFd mine(ends[0]);
  base::UniqueFd brokers(ends[1]);
  auto line = live(0, mine.get());
  let_tick(0, 3);
  EXPECT_EQ(control_->broker_lost.load(), 0u);
  brokers.reset();
  EXPECT_TRUE(alarm_rises_from(0));
  EXPECT_EQ(control_->broker_lost.load(), 1u);
  let_tick(0, 3);
  EXPECT_EQ(control_->alarm.load(), 1u) << "told once";
}

TEST_F(LifelineTest, AMemberThatWasTurnedOutDoesNotBlameTheBroker) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  base::UniqueFd mine(ends[0]);
  base::UniqueFd brokers(ends[1]);
  auto line = live(0, mine.get());
  EXPECT_TRUE(core::mark_dead(slot(0), LossCause::removed, base::monotonic_ns()));
  brokers.reset();
  let_tick(0, 4);
  EXPECT_EQ(control_->broker_lost.load(), 0u);
  line.reset();
  EXPECT_EQ(core::cause_of(slot(0)), LossCause::removed);
}

TEST_F(LifelineTest, AProcessThatDumpsCoreIsFoundWhileItStillDoes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "with a sanitizer's shadow memory a core takes the kernel minutes";
#endif
  std::string pattern;
  std::getline(std::ifstream("/proc/sys/kernel/core_pattern"), pattern);
  if (pattern.empty() || pattern[0] == '|' || pattern[0] == '@')
    GTEST_SKIP() << "cores go to a program here (core_pattern " << pattern << "), not to a file";
  // The core file is a pipe that the test reads: it takes as long as the test wants.
  std::string directory = ::testing::TempDir() + "tugline-core-XXXXXX";
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  constexpr std::size_t kBytes = 512 << 20;
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_CORE, &limit), 0);
  if (limit.rlim_max == 0) GTEST_SKIP() << "the hard limit of core files is 0";
  auto victim = child({1, 2}, [&]() -> int {
    rlimit all{limit.rlim_max, limit.rlim_max};
    if (::chdir(directory.c_str()) != 0 || ::setrlimit(RLIMIT_CORE, &all) != 0) return 3;
    auto* memory = static_cast<char*>(
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (std::size_t at = 0; at < kBytes; at += 4096) memory[at] = 1;
    slot(1).rank.store(99);  // ready
    ::signal(SIGQUIT, SIG_DFL);
    for (;;) ::pause();
  });
  auto watcher = live(0);
  EXPECT_TRUE(eventually([&] { return slot(1).rank.load() == 99; }));
  const auto start = base::monotonic_ns();
  victim->kill(SIGQUIT);
  EXPECT_TRUE(eventually([&] { return control_->alarm.load() == 2; }));
  const auto noticed_ms = static_cast<double>(slot(1).died_at_ns.load() - start) * 1e-6;
  const int code = victim->wait();
  const auto ended_ms = static_cast<double>(base::monotonic_ns() - start) * 1e-6;
  std::error_code ignored;
  for (const auto& name : testing::entries_of(directory)) ::unlink((directory + "/" + name).c_str());
  ::rmdir(directory.c_str());
  EXPECT_EQ(code, 128 + SIGQUIT);
  EXPECT_EQ(state(1), MemberState::dead);
  EXPECT_EQ(state(2), MemberState::dead);
  std::printf("[ measured ] core dump of 512 MiB: noticed after %.1f ms, written after %.1f ms, cause %d\n",
              noticed_ms, ended_ms, static_cast<int>(core::cause_of(slot(1))));
  // A machine that writes the core within a tick or two lets the lifeline fire first.
  if (core::cause_of(slot(1)) != LossCause::lifeline) {
    EXPECT_EQ(core::cause_of(slot(1)), LossCause::core_dump);
    EXPECT_EQ(core::cause_of(slot(2)), LossCause::core_dump);
  }
}

}  // namespace
}  // namespace tugline::broker

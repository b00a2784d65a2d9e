// SPDX-License-Identifier: Apache-2.0
// What /proc says of a process that lives, is stopped, dies, and is gone.
#include "broker/process_status.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

namespace tugline::broker {
namespace {

/// A process with two threads that never sleep.
pid_t busy_child() {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  std::atomic<unsigned> spins{0};
  std::thread other([&] {
    for (;;) ++spins;
  });
  for (;;) ++spins;
}

std::uint32_t number(pid_t pid) {
  return static_cast<std::uint32_t>(pid);
}

TEST(ProcessStatus, TheLivingAndTheStoppedCanRunTheirCode) {
  EXPECT_TRUE(can_run_its_code(number(::getpid())));
  const pid_t pid = busy_child();
  ASSERT_GT(pid, 0);
  EXPECT_TRUE(can_run_its_code(number(pid)));
  ::kill(pid, SIGSTOP);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED), 0);
  EXPECT_TRUE(can_run_its_code(number(pid))) << "it may be continued";
  ::kill(pid, SIGKILL);
  ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
}

TEST(ProcessStatus, TheDeadCannotBeforeAndAfterTheyAreReaped) {
  const pid_t pid = busy_child();
  ASSERT_GT(pid, 0);
  ::kill(pid, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(can_run_its_code(number(pid))) << "a zombie";
  ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
  EXPECT_FALSE(can_run_its_code(number(pid))) << "gone";
}

// The kernel takes time to give back memory; nothing is stored meanwhile, and nobody waits for it.
TEST(ProcessStatus, WhoIsOnItsWayOutCannotEither) {
  const pid_t pid = busy_child();
  ASSERT_GT(pid, 0);
  ::kill(pid, SIGKILL);
  while (can_run_its_code(number(pid))) std::this_thread::yield();  // without anybody reaping it
  ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
}

}  // namespace
}  // namespace tugline::broker

// SPDX-License-Identifier: Apache-2.0
#include "base/futex.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/clock.h"
#include "base/kernel.h"
#include "base/shared_memory.h"

namespace {

using namespace std::chrono_literals;
using tugline::base::futex_wait;
using tugline::base::futex_wake;
using tugline::base::WaitResult;
using Word = std::atomic<std::uint32_t>;

TEST(Futex, ChangedWordDoesNotSleep) {
  Word word{1};
  EXPECT_EQ(futex_wait(word, 0, tugline::base::kForever), WaitResult::changed);
  EXPECT_EQ(futex_wait(word, 0, 0ns), WaitResult::changed);
}

TEST(Futex, TimesOutAfterTheTimeAndNotBefore) {
  Word word{0};
  const auto start = tugline::base::monotonic_ns();
  WaitResult result;
  while ((result = futex_wait(word, 0, 20ms)) == WaitResult::woken) {
  }
  EXPECT_EQ(result, WaitResult::timed_out);
  EXPECT_GE(tugline::base::monotonic_ns() - start, 20'000'000U);
  EXPECT_EQ(futex_wait(word, 0, -1ns), WaitResult::timed_out);
}

TEST(Futex, AnyOfSeveralWordsWakes) {
  for (std::size_t changed = 0; changed < 3; ++changed) {
    Word words[3] = {1, 2, 3};
    const tugline::base::FutexWord all[] = {{&words[0], 1}, {&words[1], 2}, {&words[2], 3}};
    std::thread changer([&] {
      words[changed].fetch_add(1);
      futex_wake(words[changed]);
    });
    // Short naps: a kernel before 5.16 sleeps on the first word only.
    while (futex_wait_any(all, 10ms) != WaitResult::changed) {
    }
    changer.join();
    EXPECT_EQ(futex_wait_any(all, tugline::base::kForever), WaitResult::changed);
  }
}

TEST(Futex, SeveralWordsTimeOutAfterTheTimeAndNotBefore) {
  Word words[2] = {1, 2};
  const tugline::base::FutexWord all[] = {{&words[0], 1}, {&words[1], 2}};
  const auto start = tugline::base::monotonic_ns();
  WaitResult result;
  while ((result = futex_wait_any(all, 20ms)) == WaitResult::woken) {
  }
  EXPECT_EQ(result, WaitResult::timed_out);
  EXPECT_GE(tugline::base::monotonic_ns() - start, 20'000'000U);
}

// A second word rung while asleep: woken at once, not at the end of the time.
TEST(Futex, ALaterWordWakesASleeperWhereTheKernelCan) {
  if (!tugline::base::kernel_at_least(5, 16)) GTEST_SKIP() << "the kernel is before 5.16 or behaves so";
  Word words[2] = {1, 2};
  std::atomic<bool> over{false};
  std::thread sleeper([&] {
    const tugline::base::FutexWord all[] = {{&words[0], 1}, {&words[1], 2}};
    while (futex_wait_any(all, tugline::base::kForever) != WaitResult::woken) {
    }
    over = true;
  });
  // Wakes only who sleeps already: again until it did.
  while (!over) futex_wake(words[1]);
  sleeper.join();
}

TEST(Futex, WakesASleeper) {
  Word word{0};
  std::thread sleeper([&] {
    while (word.load(std::memory_order_acquire) == 0) (void)futex_wait(word, 0, 10s);
  });
  word.store(1, std::memory_order_release);
  futex_wake(word);
  sleeper.join();
  EXPECT_EQ(futex_wake(word), 0);
}

TEST(Futex, WorksBetweenProcessesAndOnAReadOnlyMapping) {
  const auto fd = tugline::base::create_sealed_memfd("futex-test", sizeof(Word));
  tugline::base::Mapping writable(fd.get(), sizeof(Word), tugline::base::Access::read_write);
  auto& word = *static_cast<Word*>(writable.data());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    tugline::base::Mapping readable(fd.get(), sizeof(Word), tugline::base::Access::read_only);
    const auto& seen = *static_cast<const Word*>(readable.data());
    while (seen.load(std::memory_order_acquire) == 0)
      if (futex_wait(seen, 0, 10s) == WaitResult::timed_out) _exit(1);
    _exit(0);
  }
  word.store(1, std::memory_order_release);
  futex_wake(word);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace

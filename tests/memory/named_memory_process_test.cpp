// SPDX-License-Identifier: Apache-2.0
// Named buffers whose writers are killed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <random>
#include <span>

#include "../broker/process_server.h"
#include "memory/named_memory.h"
#include "tugline/error.h"

namespace tugline::memory {
namespace {

using broker::testing::Child;
using broker::testing::eventually;
using broker::testing::Gate;
using broker::testing::ProcessServer;

using Words = NamedBuffer<std::uint64_t>;

Words open(const std::shared_ptr<broker::Client>& client, int copies, std::size_t count) {
  return {open_named(client, "weights", count * sizeof(std::uint64_t), {.copies = copies}), count};
}

void write(std::span<std::uint64_t> elements, std::uint64_t value) {
  // Volatile: every store happens, in this order.
  for (auto& element : elements) static_cast<volatile std::uint64_t&>(element) = value;
}

bool all_are(std::span<const std::uint64_t> elements, std::uint64_t value) {
  return std::all_of(elements.begin(), elements.end(), [&](auto element) { return element == value; });
}

/// next() as soon as the killed writer is known to be dead: until then it counts as alive.
std::span<std::uint64_t> next_after_death(Words& buffer) {
  std::span<std::uint64_t> elements;
  EXPECT_TRUE(eventually([&] {
    try {
      elements = buffer.next();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_usage);
    }
    return !elements.empty();
  }));
  return elements;
}

class NamedMemoryProcessTest : public testing::Test {
 protected:
  static constexpr std::size_t kCount = 20'000;

#if defined(__SANITIZE_THREAD__)
  void SetUp() override {
    GTEST_SKIP() << "ThreadSanitizer does not support children of a process with threads that start threads";
  }
#endif

  /// A child that joins as `rank` and writes version after version without end, or stops amid its fourth.
  enum class Writes { on, until_midway };
  std::unique_ptr<Child> writer(int rank, int size, int copies, const Gate& begun,
                                Writes writes = Writes::on) {
    return std::make_unique<Child>([=, this, &begun]() -> int {
      auto client = server_.join(rank, size);
      auto buffer = open(client, copies, kCount);
      const auto fourth = buffer.version() + 4;
      for (auto version = buffer.version() + 1;; ++version) {
        const auto elements = buffer.next();
        write(elements.first(kCount / 2), version);
        if (version == fourth) begun.open();
        while (version == fourth && writes == Writes::until_midway) ::pause();
        write(elements.last(kCount - kCount / 2), version);
        buffer.publish(version);
      }
    });
  }

  ProcessServer server_;
};

TEST_F(NamedMemoryProcessTest, WithTwoCopiesTheLastVersionIsWholeWheneverTheWriterIsKilled) {
  std::mt19937 random(7);
  std::uint64_t last = 0;
  for (int kill = 0; kill < 25; ++kill) {
    Gate begun;
    auto child = writer(0, 2, 2, begun);
    ASSERT_TRUE(begun.wait());
    // At an arbitrary point of its writing: the time of a few to many versions.
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
    child->kill(SIGKILL);
    auto client = server_.join(1, 2);
    auto buffer = open(client, 2, kCount);
    child->wait();
    const auto version = buffer.version();
    ASSERT_GT(version, last) << "kill " << kill;
    ASSERT_TRUE(all_are(buffer.current(), version)) << "kill " << kill << ", version " << version;
    ASSERT_FALSE(buffer.torn());
    // Its successor takes over as soon as its process has ended.
    write(next_after_death(buffer), version + 1);
    buffer.publish(version + 1);
    ASSERT_TRUE(all_are(buffer.current(), version + 1));
    last = version + 1;
    client->leave();
  }
}

TEST_F(NamedMemoryProcessTest, WithOneCopyAFinderIsToldTornOrReadsAWholeVersion) {
  int torn = 0;
  for (int kill = 0; kill < 15; ++kill) {
    Gate begun;
    // At least the first kill meets a write, however this machine schedules.
    auto child = writer(0, 2, 1, begun, kill == 0 ? Writes::until_midway : Writes::on);
    ASSERT_TRUE(begun.wait());
    child->kill(SIGKILL);
    child->wait();
    auto client = server_.join(1, 2);
    auto buffer = open(client, 1, kCount);
    const auto version = buffer.version();
    const auto elements = next_after_death(buffer);
    if (buffer.torn()) {
      ++torn;
      EXPECT_THROW((void)buffer.current(), Error);
    } else {
      ASSERT_TRUE(all_are(buffer.current(), version));
    }
    write(elements, version + 1);
    buffer.publish(version + 1);
    ASSERT_FALSE(buffer.torn());
    ASSERT_TRUE(all_are(buffer.current(), version + 1));
    client->leave();
  }
  EXPECT_GT(torn, 0) << "no kill met a write";
}

TEST_F(NamedMemoryProcessTest, IsFoundAgainAndWritableAfterAllRanksWereKilled) {
  {
    Gate begun_first;
    Gate begun_second;
    auto first = writer(0, 2, 2, begun_first);
    auto second = std::make_unique<Child>([&]() -> int {
      auto client = server_.join(1, 2);
      const auto buffer = open(client, 2, kCount);
      begun_second.open();
      for (;;)
        if (buffer.version() == UINT64_MAX) return 1;
    });
    ASSERT_TRUE(begun_first.wait());
    ASSERT_TRUE(begun_second.wait());
    first->kill(SIGKILL);
    second->kill(SIGKILL);
    first->wait();
    second->wait();
  }
  auto client = server_.join(0, 1 + 1);
  auto buffer = open(client, 2, kCount);
  const auto version = buffer.version();
  EXPECT_GE(version, 3u);
  EXPECT_TRUE(all_are(buffer.current(), version));
  write(next_after_death(buffer), version + 1);
  buffer.publish(version + 1);
  EXPECT_EQ(buffer.version(), version + 1);
}

}  // namespace
}  // namespace tugline::memory

// SPDX-License-Identifier: Apache-2.0
#include "memory/window.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "../broker/expect_error.h"
#include "../broker/support.h"
#include "memory/allocation.h"
#include "memory/member_memory.h"
#include "memory/named_memory.h"

namespace tugline::memory {
namespace {

using broker::testing::ThreadedServer;

const void* at(std::uintptr_t address) {
  return reinterpret_cast<const void*>(address);
}

TEST(WindowTest, FindsWhatLiesInARangeAndNothingElse) {
  Windows windows;
  windows.add(at(0x2000), 0x1000, 7, 0);
  windows.add(at(0x1000), 0x800, 8, 0x4000);
  EXPECT_EQ(windows.find(at(0x2000), 0x1000), (Window{7, 0, 0x1000}));
  EXPECT_EQ(windows.find(at(0x2ffc), 4), (Window{7, 0xffc, 4}));
  EXPECT_EQ(windows.find(at(0x1010), 16), (Window{8, 0x4010, 0x7f0}));
  EXPECT_EQ(windows.find(at(0x2ffc), 5), std::nullopt) << "one byte past its end";
  EXPECT_EQ(windows.find(at(0x1fff), 2), std::nullopt) << "one byte before its begin";
  EXPECT_EQ(windows.find(at(0x1800), 0), std::nullopt) << "just behind a range";
  EXPECT_EQ(windows.find(at(0xfff), 1), std::nullopt);
  EXPECT_EQ(windows.find(at(0x3000), 1), std::nullopt);
  EXPECT_EQ(windows.find(at(0x2000), SIZE_MAX), std::nullopt) << "no wrap";
  EXPECT_EQ(windows.find(nullptr, 0), std::nullopt);
}

TEST(WindowTest, AForgottenRangeIsNotFoundAndOthersAre) {
  Windows windows;
  for (std::uintptr_t i = 1; i <= 5; ++i) windows.add(at(i * 0x1000), 0x1000, i, 0);
  windows.remove(at(0x3000));
  windows.remove(at(0x3000));
  windows.remove(at(0x1800));  // no begin of any
  EXPECT_EQ(windows.count(), 4u);
  for (std::uintptr_t i = 1; i <= 5; ++i)
    EXPECT_EQ(windows.find(at(i * 0x1000 + 8), 8).has_value(), i != 3) << i;
}

TEST(WindowTest, OverlapsAreRefusedWithBothRanges) {
  Windows windows;
  windows.add(at(0x2000), 0x1000, 7, 0);
  for (const auto begin : {0x2000, 0x1800, 0x2fff, 0x2800})
    EXPECT_ERROR(windows.add(at(begin), 0x1000, 8, 0), ErrorCode::already_exists,
                 "overlap the 4096 bytes at 0x2000 that are segment 7's");
  windows.add(at(0x3000), 1, 8, 0);
  windows.add(at(0x1fff), 1, 9, 0);
  EXPECT_EQ(windows.count(), 3u);
}

TEST(WindowTest, AgreesWithAPlainSearchOverRandomRanges) {
  std::mt19937 random(3);
  Windows windows;
  std::vector<bool> there(512, false);
  for (int step = 0; step < 20'000; ++step) {
    const auto slot = random() % there.size();
    const auto base = at(0x10000 + slot * 0x100);
    if (there[slot])
      windows.remove(base);
    else
      windows.add(base, 0x80, slot, slot);
    there[slot] = !there[slot];
    const auto probed = random() % there.size();
    const auto distance = random() % 0x100;
    const auto found = windows.find(at(0x10000 + probed * 0x100 + distance), 1);
    ASSERT_EQ(found.has_value(), there[probed] && distance < 0x80);
    if (found) {
      ASSERT_EQ(*found, (Window{probed, probed + distance, 0x80 - distance}));
    }
  }
}

TEST(WindowTest, ReadersBesideWritersSeeWholeEntriesOnly) {
  Windows windows;
  constexpr std::uintptr_t kStay = 64;
  for (std::uintptr_t i = 0; i < kStay; ++i) windows.add(at(0x100000 + i * 0x2000), 0x1000, i, i);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 3; ++reader)
    readers.emplace_back([&, reader] {
      for (std::uintptr_t i = static_cast<std::uintptr_t>(reader); !stop.load(); i = (i + 1) % kStay)
        if (windows.find(at(0x100000 + i * 0x2000 + 5), 8) != Window{i, i + 5, 0x1000 - 5}) ++wrong;
    });
  std::mt19937 random(5);
  for (int round = 0; round < 20'000; ++round) {
    // Between and beyond those that stay, so that they move; far enough beyond to make the table grow.
    const auto base = at(0x101000 + (random() % (4 * kStay)) * 0x2000);
    windows.add(base, 0x800, 1000, 0);
    windows.remove(base);
  }
  for (std::uintptr_t i = 0; i < 200; ++i) windows.add(at(0x900000 + i * 0x1000), 0x1000, 2000 + i, 0);
  stop = true;
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
}

TEST(WindowTest, BuffersAndNamedBuffersAreKnownWhileTheyLive) {
  ThreadedServer server;
  const auto client = server.join();
  const auto memory = MemberMemory::of(client);
  const char* data = nullptr;
  {
    const auto allocation = allocate(client, 10'000);
    data = static_cast<const char*>(allocation->data());
    const auto all = memory->windows().find(data, 10'000);
    ASSERT_TRUE(all);
    EXPECT_EQ(all->offset, 0u);
    EXPECT_EQ(all->bytes_left, 10'000u);
    const auto part = memory->windows().find(data + 4000, 100);
    EXPECT_EQ(part, (Window{all->segment, 4000, 6000}));

    const auto named = open_named(client, "weights", 6000, {.copies = 2});
    const auto first = memory->windows().find(named->current(), 6000);
    const auto second = memory->windows().find(named->next(), 6000);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(first->segment, second->segment);
    EXPECT_EQ(first->offset, 4096u);
    EXPECT_EQ(second->offset, 4096u + 8192u);
    int local = 0;
    EXPECT_EQ(memory->windows().find(&local, sizeof(local)), std::nullopt);
  }
  EXPECT_EQ(memory->windows().find(data, 1), std::nullopt);
  EXPECT_EQ(memory->windows().count(), 0u);
}

TEST(WindowTest, EveryMemberOfAProcessHasItsOwn) {
  ThreadedServer server;
  const auto one = server.join(0, 2);
  const auto two = server.join(1, 2);
  const auto kept = MemberMemory::of(one);
  EXPECT_EQ(MemberMemory::of(one), kept);
  EXPECT_NE(MemberMemory::of(two), kept);
}

}  // namespace
}  // namespace tugline::memory

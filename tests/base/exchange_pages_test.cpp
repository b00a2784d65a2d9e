// SPDX-License-Identifier: Apache-2.0
#include "base/exchange_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/mappings.h"
#include "base/shared_memory.h"
#include "tugline/error.h"

namespace tugline::base {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kPiece = 64 << 20;

/// Private memory with another word in each page.
class Memory {
 public:
  explicit Memory(std::uint64_t bytes) : bytes_(bytes) {
    address_ = static_cast<char*>(
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (std::uint64_t at = 0; at < bytes; at += kPage) std::memcpy(address_ + at, &at, sizeof(at));
  }
  ~Memory() { ::munmap(address_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  char* data() const { return address_; }
  bool is_whole() const {
    for (std::uint64_t at = 0; at < bytes_; at += kPage)
      if (std::memcmp(address_ + at, &at, sizeof(at)) != 0) return false;
    return true;
  }
  /// All of it is private ("p") or shared ("s").
  bool is(char kind) const {
    for (const auto& range : mapped_ranges(address_, bytes_))
      if (range.access.back() != kind) return false;
    return true;
  }

 private:
  std::uint64_t bytes_;
  char* address_;
};

std::uint64_t locked_kilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmLck:")) return std::stoull(line.substr(6));
  return 0;
}

TEST(ExchangePages, ContentsStayBothWays) {
  for (const auto bytes : {kPage, 3 * kPage, kPiece + 5 * kPage}) {
    Memory memory(bytes);
    const auto memfd = create_sealed_memfd("exchanged", bytes);
    exchange_for_shared(memory.data(), bytes, memfd.get());
    EXPECT_TRUE(memory.is('s'));
    EXPECT_TRUE(memory.is_whole());
    // They are the memfd's: what another mapping writes is here.
    const Mapping other(memfd.get(), bytes, Access::read_write);
    auto* theirs = static_cast<char*>(other.data());
    EXPECT_EQ(std::memcmp(theirs, memory.data(), bytes), 0);
    theirs[bytes - 1] = 7;
    EXPECT_EQ(memory.data()[bytes - 1], 7);

    exchange_for_private(memory.data(), bytes, memfd.get());
    EXPECT_TRUE(memory.is('p'));
    EXPECT_TRUE(memory.is_whole());
    EXPECT_EQ(memory.data()[bytes - 1], 7);
    theirs[bytes - 1] = 8;
    EXPECT_EQ(memory.data()[bytes - 1], 7);
    EXPECT_EQ(theirs[0], 0) << "pages are freed as they are left";
  }
}

TEST(ExchangePages, WhoReadsMeanwhileReadsRight) {
  constexpr auto kBytes = 2 * kPiece;
  Memory memory(kBytes);
  const auto memfd = create_sealed_memfd("exchanged", kBytes);
  std::atomic<bool> stop{false};
  std::atomic<int> reads{0};
  bool right = true;
  std::thread reader([&] {
    while (!stop) {
      right = right && memory.is_whole();
      ++reads;
    }
  });
  while (reads < 1) std::this_thread::yield();
  exchange_for_shared(memory.data(), kBytes, memfd.get());
  exchange_for_private(memory.data(), kBytes, memfd.get());
  const int before = reads;
  while (reads < before + 2) std::this_thread::yield();
  stop = true;
  reader.join();
  EXPECT_TRUE(right);
}

// The memfd is too short for the second piece: what was done is undone.
TEST(ExchangePages, AFailureHalfWayLeavesPrivateMemoryWhole) {
  constexpr auto kBytes = 2 * kPiece;
  Memory memory(kBytes);
  const auto memfd = create_sealed_memfd("exchanged", kPiece);
  try {
    exchange_for_shared(memory.data(), kBytes, memfd.get());
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
  }
  EXPECT_TRUE(memory.is('p'));
  EXPECT_TRUE(memory.is_whole());
}

TEST(ExchangePages, LockedPagesStayLocked) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers replace mlock() by one that locks nothing";
#endif
  constexpr auto kBytes = 4 * kPage;
  Memory memory(kBytes);
  if (::mlock(memory.data(), kBytes) != 0) GTEST_SKIP() << "this process may lock no memory";
  const auto locked = locked_kilobytes();
  ASSERT_GE(locked, kBytes / 1024);
  const auto memfd = create_sealed_memfd("exchanged", kBytes);
  exchange_for_shared(memory.data(), kBytes, memfd.get());
  EXPECT_EQ(locked_kilobytes(), locked);
  exchange_for_private(memory.data(), kBytes, memfd.get());
  EXPECT_EQ(locked_kilobytes(), locked);
  EXPECT_TRUE(memory.is_whole());
}

TEST(MappedRanges, TellWhatIsThere) {
  Memory memory(3 * kPage);
  ::mprotect(memory.data() + kPage, kPage, PROT_READ);
  const auto ranges = mapped_ranges(memory.data() + 10, 3 * kPage - 10);
  ASSERT_EQ(ranges.size(), 3u);
  EXPECT_EQ(ranges[0].access, "rw-p");
  EXPECT_EQ(ranges[1].access, "r--p");
  EXPECT_EQ(ranges[1].begin, reinterpret_cast<std::uintptr_t>(memory.data()) + kPage);
  EXPECT_EQ(ranges[1].end, ranges[1].begin + kPage);
  EXPECT_EQ(ranges[1].inode, 0u);
  const auto code = mapped_ranges(reinterpret_cast<void*>(&locked_kilobytes), 1);
  ASSERT_EQ(code.size(), 1u);
  EXPECT_NE(code[0].inode, 0u);
  EXPECT_THAT(code[0].name, ::testing::HasSubstr("base_test"));
}

}  // namespace
}  // namespace tugline::base

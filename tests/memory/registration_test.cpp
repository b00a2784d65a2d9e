// SPDX-License-Identifier: Apache-2.0
// Memory of the user that is registered: it keeps address and contents, others reach it, what cannot be
// registered is refused and left as it was.
#include "memory/registration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../broker/expect_error.h"
#include "../broker/support.h"
#include "base/log.h"
#include "base/mappings.h"
#include "memory/allocation.h"
#include "memory/member_memory.h"

namespace tugline::memory {
namespace {

using broker::testing::ThreadedServer;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kBytes = 64 * kPage;

struct Free {
  void operator()(unsigned char* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<unsigned char, Free>;

/// Of malloc, whole pages, every byte 5.
Memory some_memory(std::size_t bytes = kBytes) {
  Memory memory(static_cast<unsigned char*>(std::aligned_alloc(kPage, bytes)));
  std::memset(memory.get(), 5, bytes);
  return memory;
}

bool all_are(const void* memory, int value, std::size_t bytes = kBytes) {
  const auto* at = static_cast<const unsigned char*>(memory);
  for (std::size_t i = 0; i < bytes; ++i)
    if (at[i] != value) return false;
  return true;
}

char kind_of(const void* memory) {
  return base::mapped_ranges(memory, 1).at(0).access.back();
}

class RegistrationTest : public testing::Test {
 protected:
  Window window_of(const void* pointer, std::size_t bytes) {
    return MemberMemory::of(client_)->windows().find(pointer, bytes).value_or(Window{});
  }
  std::uint64_t charged() { return client_->usage(client_->member()).buffer_bytes; }

  ThreadedServer server_;
  std::shared_ptr<broker::Client> client_ = server_.join(0, 2);
  // Keeps the windows.
  std::shared_ptr<MemberMemory> member_memory_ = MemberMemory::of(client_);
};

TEST_F(RegistrationTest, KeepsAddressAndContentsAndIsReachedByOthers) {
  const auto memory = some_memory();
  auto registered = register_memory(client_, memory.get(), kBytes);
  EXPECT_EQ(registered->data(), memory.get());
  EXPECT_EQ(registered->bytes(), kBytes);
  EXPECT_TRUE(all_are(memory.get(), 5));
  EXPECT_EQ(charged(), kBytes);

  // A part is found as that of an allocation is.
  const auto window = window_of(memory.get() + 1000, 24);
  ASSERT_NE(window.segment, 0u);
  EXPECT_EQ(window.offset, 1000u);
  EXPECT_EQ(window_of(memory.get() + kBytes - 1, 2).segment, 0u);

  const auto other = server_.join(1, 2);
  ImportCache cache(other);
  {
    auto lease = cache.map(window.segment);
    EXPECT_TRUE(all_are(lease.data(), 5));
    lease.data()[7] = std::byte{9};
    EXPECT_EQ(memory.get()[7], 9);
    memory.get()[8] = 10;
    EXPECT_EQ(lease.data()[8], std::byte{10});

    // The lease keeps the segment, not the memory.
    registered.reset();
    EXPECT_EQ(kind_of(memory.get()), 'p');
    EXPECT_EQ(memory.get()[7], 9);
    EXPECT_EQ(memory.get()[8], 10);
    lease.data()[7] = std::byte{1};
    EXPECT_EQ(memory.get()[7], 9);
    EXPECT_EQ(window_of(memory.get(), 1).segment, 0u);
    EXPECT_EQ(charged(), kBytes) << "it is still leased";
  }
  cache.drop_retired();
  EXPECT_EQ(charged(), 0u);
  EXPECT_ERROR(cache.map(window.segment), ErrorCode::not_found, "not held");
}

TEST_F(RegistrationTest, MayBeRepeatedAndNeedNotBeAllOfAnAllocation) {
  const auto memory = some_memory();
  for (int round = 0; round < 20; ++round) {
    const auto first = register_memory(client_, memory.get() + kPage, 3 * kPage);
    const auto second = register_memory(client_, memory.get() + 4 * kPage, kPage);
    EXPECT_EQ(kind_of(memory.get()), 'p');
    EXPECT_EQ(kind_of(memory.get() + kPage), 's');
    EXPECT_EQ(kind_of(memory.get() + 5 * kPage), 'p');
    EXPECT_NE(window_of(memory.get() + kPage, 1).segment, window_of(memory.get() + 4 * kPage, 1).segment);
  }
  EXPECT_TRUE(all_are(memory.get(), 5));
  EXPECT_EQ(charged(), 0u);
}

TEST_F(RegistrationTest, OutlivesTheClientsLastOtherOwner) {
  const auto memory = some_memory();
  auto registered = register_memory(client_, memory.get(), kBytes);
  client_->leave();
  client_.reset();
  member_memory_.reset();
  EXPECT_TRUE(all_are(memory.get(), 5));
  registered.reset();
  EXPECT_EQ(kind_of(memory.get()), 'p');
  EXPECT_TRUE(all_are(memory.get(), 5));
}

TEST_F(RegistrationTest, RefusesWhatIsNoWholePagesWithTheRemedy) {
  const auto memory = some_memory();
  EXPECT_ERROR(register_memory(client_, memory.get() + 64, kPage), ErrorCode::invalid_argument,
               "the address is no multiple of the page size, 4096 bytes");
  EXPECT_ERROR(register_memory(client_, memory.get(), kPage + 8), ErrorCode::invalid_argument,
               "aligned_alloc(4096, a multiple of 4096)");
  EXPECT_ERROR(register_memory(client_, memory.get(), 0), ErrorCode::invalid_argument, "0 bytes");
  EXPECT_ERROR(register_memory(client_, nullptr, kPage), ErrorCode::invalid_argument, "no memory");
  EXPECT_ERROR(register_memory(client_, memory.get(), ~std::size_t{0} - kPage + 1),
               ErrorCode::invalid_argument, "no memory");
  EXPECT_EQ(kind_of(memory.get()), 'p');
  EXPECT_EQ(charged(), 0u);
}

TEST_F(RegistrationTest, RefusesWhatIsNoPrivateMemoryAndSaysWhatItIs) {
  const auto refused = [&](void* address, const char* why, ErrorCode code = ErrorCode::invalid_argument) {
    EXPECT_ERROR(register_memory(client_, address, 2 * kPage), code, why);
  };
  const auto map = [](int protection, int flags, int descriptor = -1) {
    return static_cast<char*>(::mmap(nullptr, 2 * kPage, protection, flags, descriptor, 0));
  };
  constexpr int kReadWrite = PROT_READ | PROT_WRITE;
  constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS;
  refused(map(kReadWrite, MAP_SHARED | MAP_ANONYMOUS), "are shared memory");
  refused(map(PROT_READ, kPrivate), "the rights r--p");
  const auto file = base::create_sealed_memfd("someones", 2 * kPage);
  refused(map(kReadWrite, MAP_SHARED, file.get()), "are shared memory");
  refused(map(kReadWrite, MAP_PRIVATE, file.get()), "are mapped from /memfd:someones");
  auto* hole = map(kReadWrite, kPrivate);
  ::munmap(hole + kPage, kPage);
  refused(hole, "have nothing mapped");
  auto* mixed = map(kReadWrite, kPrivate);
  mixed[0] = 3;
  ::mprotect(mixed + kPage, kPage, PROT_NONE);
  refused(mixed, "---p");
  EXPECT_EQ(mixed[0], 3);
  int here = 0;
  auto* stack = reinterpret_cast<char*>(reinterpret_cast<std::uintptr_t>(&here) / kPage * kPage);
  refused(stack - kPage, "stack");
  std::thread([&] {
    int there = 0;
    refused(reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(&there) / kPage * kPage - kPage),
            "stack");
  }).join();
  EXPECT_EQ(charged(), 0u);
}

TEST_F(RegistrationTest, RefusesWhatIsSharedByTheLibraryAlready) {
  const auto memory = some_memory();
  const auto registered = register_memory(client_, memory.get() + kPage, 2 * kPage);
  const auto allocation = allocate(client_, 2 * kPage);
  const auto charged_before = charged();
  for (auto* address : {memory.get() + kPage, memory.get(), memory.get() + 2 * kPage})
    EXPECT_ERROR(register_memory(client_, address, 2 * kPage), ErrorCode::already_exists, "or registered");
  EXPECT_ERROR(register_memory(client_, allocation->data(), 2 * kPage), ErrorCode::already_exists,
               "memory of the library");
  // Nor by another member in this process.
  const auto other = server_.join(1, 2);
  EXPECT_ERROR(register_memory(other, memory.get() + kPage, kPage), ErrorCode::already_exists,
               "or registered");
  EXPECT_EQ(charged(), charged_before);
  EXPECT_TRUE(all_are(memory.get(), 5));
}

TEST_F(RegistrationTest, MemoryThatIsFreedMeanwhileIsNotTouchedAtTheEnd) {
  constexpr int kReadWrite = PROT_READ | PROT_WRITE;
  auto* memory = ::mmap(nullptr, kBytes, kReadWrite, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto registered = register_memory(client_, memory, kBytes);
  ::mmap(memory, kBytes, kReadWrite, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  std::memset(memory, 6, kBytes);
  std::vector<std::string> lines;
  base::set_log_callback([&](base::LogLevel, std::string_view line) { lines.emplace_back(line); });
  registered.reset();
  base::set_log_callback({});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], testing::HasSubstr("end a registration before its memory is freed"));
  EXPECT_TRUE(all_are(memory, 6));
  // And can be registered like any other.
  registered = register_memory(client_, memory, kBytes);
  EXPECT_TRUE(all_are(memory, 6));
  registered.reset();
  ::munmap(memory, kBytes);
}

TEST(RegistrationLimits, AMembersLimitIsToldWithTheContentsWhole) {
  broker::ServerOptions options;
  options.limits = {.member_bytes = kBytes};
  ThreadedServer server(std::move(options));
  const auto client = server.join();
  const auto memory = some_memory(2 * kBytes);
  EXPECT_ERROR(register_memory(client, memory.get(), 2 * kBytes), ErrorCode::out_of_memory,
               std::to_string(2 * kBytes) + " bytes were asked by rank 0");
  EXPECT_TRUE(all_are(memory.get(), 5, 2 * kBytes));
  EXPECT_EQ(kind_of(memory.get()), 'p');
  const auto half = register_memory(client, memory.get(), kBytes);
  EXPECT_EQ(kind_of(memory.get()), 's');
}

}  // namespace
}  // namespace tugline::memory

// SPDX-License-Identifier: Apache-2.0
// Registered memory between processes: forked children, owners that die, limits of a process.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "../broker/expect_error.h"
#include "../broker/process_server.h"
#include "base/mappings.h"
#include "memory/member_memory.h"
#include "memory/registration.h"

namespace tugline::memory {
namespace {

using broker::testing::Child;
using broker::testing::eventually;
using broker::testing::Gate;
using broker::testing::ProcessServer;

constexpr std::size_t kBytes = 1 << 20;

unsigned char* some_memory(std::size_t bytes = kBytes) {
  auto* memory = static_cast<unsigned char*>(std::aligned_alloc(4096, bytes));
  std::memset(memory, 5, bytes);
  return memory;
}

bool all_are(const unsigned char* memory, int value, std::size_t bytes = kBytes) {
  for (std::size_t i = 0; i < bytes; ++i)
    if (memory[i] != value) return false;
  return true;
}

class RegistrationProcessTest : public testing::Test {
 protected:
#if defined(__SANITIZE_THREAD__)
  void SetUp() override {
    GTEST_SKIP() << "ThreadSanitizer does not support children of a process with threads that start threads";
  }
#endif
  ProcessServer server_;
  std::shared_ptr<broker::Client> client_ = server_.join(1, 2);
};

// As with all private memory: what the child does to it is the child's.
TEST_F(RegistrationProcessTest, AForkedChildHasACopyOfItsOwnAndChangesNothing) {
  auto* memory = some_memory();
  auto registered = register_memory(client_, memory, kBytes);
  Gate child_has_written;
  Gate written;
  Child child([&]() -> int {
    if (!all_are(memory, 5)) return 1;
    std::memset(memory, 6, kBytes / 2);
    child_has_written.open();
    if (!written.wait()) return 2;
    // What it has written is its own; what it has not shows what the parent has.
    if (!all_are(memory, 6, kBytes / 2) || !all_are(memory + kBytes / 2, 7, kBytes / 2)) return 3;
    registered.reset();  // the parent's affair
    if (!all_are(memory, 6, kBytes / 2)) return 4;
    std::free(memory);
    return 0;
  });
  ASSERT_TRUE(child_has_written.wait());
  std::memset(memory + kBytes / 2, 7, kBytes / 2);
  written.open();
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(all_are(memory, 5, kBytes / 2));
  EXPECT_TRUE(all_are(memory + kBytes / 2, 7, kBytes / 2));
  const auto window = MemberMemory::of(client_)->windows().find(memory, kBytes);
  EXPECT_TRUE(window) << "the child has ended it";
  registered.reset();
  std::free(memory);
}

TEST_F(RegistrationProcessTest, WhatAKilledOwnerRegisteredStaysWithWhoLeasesIt) {
  Child owner([&]() -> int {
    const auto client = server_.join(0, 2);
    auto* memory = some_memory();
    const auto registered = register_memory(client, memory, kBytes);
    const auto window = MemberMemory::of(client)->windows().find(memory + 100, 1);
    if (!window || window->offset != 100) return 1;
    client->put("window", std::to_string(window->segment));
    (void)client->get("never", std::chrono::milliseconds(20'000));
    return 2;
  });
  const auto id = std::strtoull(client_->get("window", std::chrono::seconds(20)).c_str(), nullptr, 10);
  ImportCache cache(client_);
  auto lease = cache.map(id);
  owner.kill(SIGKILL);
  owner.wait();
  ASSERT_TRUE(eventually([&] { return client_->control().retired.count.load() == 1; }));
  EXPECT_TRUE(all_are(reinterpret_cast<const unsigned char*>(lease.data()), 5));
  cache.trim();
  lease = {};
  EXPECT_ERROR(cache.map(id), ErrorCode::not_found, "not held");
  EXPECT_EQ(client_->usage(core::Usage::kNobody).member_segments, 0u);
}

TEST_F(RegistrationProcessTest, WhereAddressSpaceRunsOutTheMemoryIsAsItWas) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer needs address space of its own";
#endif
  constexpr std::size_t kLarge = 128 << 20;
  Child child([&]() -> int {
    const auto client = server_.join(0, 2);
    auto* memory = some_memory(kLarge);
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit{};
    ::getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (32 << 20);
    ::setrlimit(RLIMIT_AS, &limit);
    try {
      (void)register_memory(client, memory, kLarge);
      return 1;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::out_of_memory) return 2;
    }
    if (!all_are(memory, 5, kLarge)) return 3;
    if (base::mapped_ranges(memory, 1).at(0).access.back() != 'p') return 4;
    return client->usage(client->member()).buffer_bytes == 0 ? 0 : 5;
  });
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace tugline::memory

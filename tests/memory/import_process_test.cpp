// SPDX-License-Identifier: Apache-2.0
// Memory of one process, mapped by another by its segment's id.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "../broker/expect_error.h"
#include "../broker/process_server.h"
#include "memory/allocation.h"
#include "memory/member_memory.h"

namespace tugline::memory {
namespace {

using broker::testing::Child;
using broker::testing::eventually;
using broker::testing::Gate;
using broker::testing::ProcessServer;

class ImportProcessTest : public testing::Test {
 protected:
  static constexpr std::size_t kBytes = 1 << 20;

#if defined(__SANITIZE_THREAD__)
  void SetUp() override {
    GTEST_SKIP() << "ThreadSanitizer does not support children of a process with threads that start threads";
  }
#endif

  /// A child that allocates, fills with 7, tells where a part of it lies, and frees it when it is let.
  std::unique_ptr<Child> owner(const Gate& free) {
    return std::make_unique<Child>([&]() -> int {
      const auto client = server_.join(0, 2);
      auto memory = allocate(client, kBytes);
      auto* bytes = static_cast<unsigned char*>(memory->data());
      std::memset(bytes, 7, kBytes);
      const auto window = MemberMemory::of(client)->windows().find(bytes + 1000, 24);
      if (!window || window->offset != 1000) return 1;
      client->put("window", std::to_string(window->segment));
      if (!free.wait() || bytes[1001] != 9) return 2;
      memory.reset();
      client->put("freed", "yes");
      (void)client->get("never", std::chrono::milliseconds(20'000));
      return 3;
    });
  }

  ProcessServer server_;
  std::shared_ptr<broker::Client> client_ = server_.join(1, 2);
  ImportCache cache_{client_};
};

TEST_F(ImportProcessTest, IsSharedWrittenFromBothSidesAndDroppedWhenItsOwnerFreesIt) {
  Gate free;
  const auto child = owner(free);
  const auto id = std::strtoull(client_->get("window", std::chrono::seconds(20)).c_str(), nullptr, 10);
  {
    const auto lease = cache_.map(id);
    ASSERT_EQ(lease.bytes(), kBytes);
    for (std::size_t i = 0; i < kBytes; ++i) ASSERT_EQ(lease.data()[i], std::byte{7}) << i;
    lease.data()[1001] = std::byte{9};
  }
  free.open();
  EXPECT_EQ(client_->get("freed", std::chrono::seconds(20)), "yes");
  EXPECT_ERROR(cache_.map(id), ErrorCode::not_found, std::to_string(id));
  EXPECT_EQ(cache_.statistics().mappings, 0u);
  child->kill(SIGKILL);
}

TEST_F(ImportProcessTest, TheMappingStaysValidWhenItsOwnerIsKilledAndGoesWithTheLease) {
  Gate free;
  const auto child = owner(free);
  const auto id = std::strtoull(client_->get("window", std::chrono::seconds(20)).c_str(), nullptr, 10);
  auto lease = cache_.map(id);
  child->kill(SIGKILL);
  child->wait();
  ASSERT_TRUE(eventually([&] { return client_->control().retired.count.load() == 1; }));
  for (std::size_t i = 0; i < kBytes; ++i) ASSERT_EQ(lease.data()[i], std::byte{7}) << i;
  {
    // Survivors may still ask for it while one of them has it.
    const auto again = cache_.map(id);
    EXPECT_EQ(again.data()[kBytes - 1], std::byte{7});
  }
  cache_.trim();
  lease = {};
  EXPECT_EQ(cache_.statistics().mappings, 0u);
  EXPECT_ERROR(cache_.map(id), ErrorCode::not_found, "not held");
}

/// Lowers a limit of this process.
void limit(decltype(RLIMIT_NOFILE) what, rlim_t value) {
  rlimit now{};
  ::getrlimit(what, &now);
  now.rlim_cur = value;
  ::setrlimit(what, &now);
}

rlim_t address_space_bytes() {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

TEST_F(ImportProcessTest, WhenAddressSpaceRunsOutUnusedImportsGoAndTheMapIsTriedAgain) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer needs address space of its own";
#endif
  constexpr std::size_t kLarge = 64 << 20;
  const auto first = client_->create("first", kLarge, broker::Lifetime::referenced).id;
  const auto second = client_->create("second", kLarge, broker::Lifetime::referenced).id;
  Child child([&]() -> int {
    const auto client = server_.join(0, 2);
    ImportCache cache(client);
    (void)cache.map(first);
    limit(RLIMIT_AS, address_space_bytes() + kLarge / 2);
    const auto lease = cache.map(second);
    const auto statistics = cache.statistics();
    if (lease.bytes() != kLarge || statistics.evictions != 1 || statistics.mappings != 1) return 1;
    try {
      (void)cache.map(first);
      return 2;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::out_of_memory) return 3;
    }
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(ImportProcessTest, ADescriptorThatCannotBeReceivedLeavesNoReference) {
  const auto segment = client_->create("", 4096, broker::Lifetime::referenced).id;
  Gate tried;
  Gate freed;
  Child child([&]() -> int {
    const auto client = server_.join(0, 2);
    ImportCache cache(client);
    const int next = ::dup(0);
    ::close(next);
    limit(RLIMIT_NOFILE, static_cast<rlim_t>(next));
    try {
      (void)cache.map(segment);
      return 1;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::out_of_memory) return 2;
    }
    tried.open();
    return freed.wait() ? 0 : 3;
  });
  ASSERT_TRUE(tried.wait());
  client_->release(segment);
  EXPECT_ERROR(client_->import(segment), ErrorCode::not_found, "not held");
  freed.open();
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace tugline::memory

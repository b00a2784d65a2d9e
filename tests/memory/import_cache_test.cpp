// SPDX-License-Identifier: Apache-2.0
// The import cache within one process: the owner and the importer are two members.
#include "memory/import_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "../broker/expect_error.h"
#include "../broker/support.h"
#include "core/control.h"
#include "memory/allocation.h"
#include "memory/member_memory.h"

namespace tugline::memory {
namespace {

using broker::testing::ThreadedServer;

class ImportCacheTest : public testing::Test {
 protected:
  struct Owned {
    std::shared_ptr<SharedAllocation> memory;
    broker::SegmentId id;
  };
  Owned make(std::size_t bytes, unsigned char value) const {
    auto memory = allocate(owner_, bytes);
    std::memset(memory->data(), value, bytes);
    const auto id = MemberMemory::of(owner_)->windows().find(memory->data(), bytes)->segment;
    return {std::move(memory), id};
  }
  static int first(const ImportLease& lease) { return std::to_integer<int>(lease.data()[0]); }

  ThreadedServer server_;
  std::shared_ptr<broker::Client> owner_ = server_.join(0, 2);
  std::shared_ptr<broker::Client> client_ = server_.join(1, 2);
  ImportCache cache_{client_};
};

TEST_F(ImportCacheTest, IsTheSameMemoryImportedOnce) {
  const auto owned = make(100'000, 7);
  const auto base = cache_.map(owned.id).data();
  const auto lease = cache_.map(owned.id);
  EXPECT_EQ(lease.data(), base) << "kept though nobody leased it";
  EXPECT_EQ(lease.bytes(), 100'000u);
  EXPECT_EQ(lease.access(), base::Access::read_write);
  EXPECT_EQ(lease.data()[99'999], std::byte{7});
  lease.data()[5] = std::byte{9};
  EXPECT_EQ(static_cast<unsigned char*>(owned.memory->data())[5], 9);
  const auto statistics = cache_.statistics();
  EXPECT_EQ(statistics.imports, 1u);
  EXPECT_EQ(statistics.hits, 1u);
  EXPECT_EQ(statistics.mappings, 1u);
  EXPECT_EQ(statistics.bytes, 100'000u);
}

TEST_F(ImportCacheTest, AFreedSegmentIsDroppedAndNeverServedAgain) {
  auto owned = make(4096, 7);
  (void)cache_.map(owned.id);
  owned.memory.reset();
  EXPECT_ERROR(cache_.map(owned.id), ErrorCode::not_found, std::to_string(owned.id));
  const auto statistics = cache_.statistics();
  EXPECT_EQ(statistics.mappings, 0u);
  EXPECT_EQ(statistics.retired, 1u);
  EXPECT_ERROR(client_->import(owned.id), ErrorCode::not_found, "not held");
}

TEST_F(ImportCacheTest, ALeaseKeepsWhatItsOwnerHasFreedAndNobodyElseGetsIt) {
  auto owned = make(4096, 7);
  auto lease = cache_.map(owned.id);
  owned.memory.reset();
  EXPECT_ERROR(cache_.map(owned.id), ErrorCode::not_found, "freed by its owner");
  EXPECT_ERROR(client_->import(owned.id), ErrorCode::not_found, "freed by its owner");
  EXPECT_EQ(first(lease), 7);
  EXPECT_EQ(cache_.statistics().mappings, 1u) << "while it is leased";
  lease = {};
  EXPECT_EQ(cache_.statistics().mappings, 0u);
  EXPECT_ERROR(client_->import(owned.id), ErrorCode::not_found, "not held");
}

TEST_F(ImportCacheTest, ANamedSegmentThatIsRemovedIsDroppedToo) {
  const auto id = owner_->open_or_create("named", 4096, broker::Lifetime::persistent).id;
  (void)cache_.map(id);
  owner_->release(id);
  (void)cache_.map(id);
  EXPECT_EQ(cache_.statistics().imports, 1u) << "it stays while it has its name";
  owner_->remove("named");
  EXPECT_ERROR(cache_.map(id), ErrorCode::not_found, std::to_string(id));
  EXPECT_EQ(cache_.statistics().mappings, 0u);
}

TEST_F(ImportCacheTest, LooksOnlyWhenSomethingWasFreed) {
  std::vector<Owned> owned;
  for (unsigned char i = 0; i < 4; ++i) owned.push_back(make(4096, i));
  for (const auto& one : owned) (void)cache_.map(one.id);
  owned.erase(owned.begin() + 1);
  cache_.drop_retired();
  EXPECT_EQ(cache_.statistics().mappings, 3u);
  for (const auto& one : owned)
    EXPECT_EQ(first(cache_.map(one.id)), *static_cast<unsigned char*>(one.memory->data()));
  EXPECT_EQ(cache_.statistics().imports, 4u);
}

TEST_F(ImportCacheTest, MoreFreedThanTheBrokersNoticesHoldDropsAllThatAreKnown) {
  const auto stays = make(4096, 7);
  (void)cache_.map(stays.id);
  // Each is freed while another member refers to it, which is what is announced.
  for (std::uint64_t i = 0; i < core::RetiredSegments::kKept + 3; ++i) {
    const auto id = owner_->create("", 4096, broker::Lifetime::referenced).id;
    (void)client_->import(id);
    owner_->release(id);
    client_->release(id);
  }
  EXPECT_EQ(first(cache_.map(stays.id)), 7);
  EXPECT_EQ(cache_.statistics().imports, 2u) << "it was asked for again";
  auto freed = make(4096, 8);
  (void)cache_.map(freed.id);
  freed.memory.reset();
  EXPECT_ERROR(cache_.map(freed.id), ErrorCode::not_found, std::to_string(freed.id));
}

TEST_F(ImportCacheTest, TheLeastRecentlyUsedWithoutALeaseGoesFirst) {
  ImportCache small(client_, {.mappings = 3});
  std::vector<Owned> owned;
  for (unsigned char i = 0; i < 4; ++i) owned.push_back(make(4096, i));
  const auto leased = small.map(owned[0].id);
  (void)small.map(owned[1].id);
  (void)small.map(owned[2].id);
  (void)small.map(owned[1].id);
  (void)small.map(owned[3].id);  // in the place of 2
  EXPECT_EQ(small.statistics().imports, 4u);
  EXPECT_EQ(small.statistics().evictions, 1u);
  EXPECT_EQ(small.statistics().mappings, 3u);
  (void)small.map(owned[0].id);
  (void)small.map(owned[1].id);
  EXPECT_EQ(small.statistics().imports, 4u);
  EXPECT_EQ(first(small.map(owned[2].id)), 2);
  EXPECT_EQ(small.statistics().imports, 5u);
}

TEST_F(ImportCacheTest, BytesAreBoundedToo) {
  ImportCache small(client_, {.bytes = 10'000});
  const auto a = make(4096, 1);
  const auto b = make(4096, 2);
  const auto c = make(9000, 3);
  (void)small.map(a.id);
  (void)small.map(b.id);
  EXPECT_EQ(first(small.map(c.id)), 3);
  EXPECT_EQ(small.statistics().bytes, 9000u);
  const auto lease = small.map(c.id);
  EXPECT_ERROR(small.map(a.id), ErrorCode::out_of_memory, "9000 of 10000 bytes");
  EXPECT_EQ(first(lease), 3);
}

TEST_F(ImportCacheTest, WhenEverythingIsLeasedTheErrorNamesTheBounds) {
  ImportCache small(client_, {.mappings = 1});
  const auto a = make(4096, 1);
  const auto b = make(4096, 2);
  {
    const auto lease = small.map(a.id);
    EXPECT_ERROR(small.map(b.id), ErrorCode::out_of_memory, "1 of 1 mappings");
    EXPECT_ERROR(small.map(b.id), ErrorCode::out_of_memory, "leased");
  }
  EXPECT_EQ(first(small.map(b.id)), 2);
}

TEST_F(ImportCacheTest, AnIdThatNeverWasIsNotFound) {
  EXPECT_ERROR(cache_.map(123'456), ErrorCode::not_found, "123456");
  EXPECT_ERROR(cache_.map(123'456), ErrorCode::not_found, "123456");
  EXPECT_EQ(cache_.statistics().mappings, 0u);
}

TEST_F(ImportCacheTest, TrimKeepsWhatIsLeased) {
  const auto a = make(4096, 1);
  const auto b = make(8192, 2);
  const auto lease = cache_.map(a.id);
  (void)cache_.map(b.id);
  EXPECT_EQ(cache_.trim(), 8192u);
  EXPECT_EQ(cache_.statistics().mappings, 1u);
  EXPECT_EQ(first(lease), 1);
}

TEST_F(ImportCacheTest, ThreadsShareOneImport) {
  const auto owned = make(1 << 20, 7);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round)
        if (first(cache_.map(owned.id)) != 7) ++wrong;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(cache_.statistics().imports, 1u);
}

TEST_F(ImportCacheTest, ThreadsThatMapBesideAnOwnerThatFreesGetTheirSegmentOrNotFound) {
  ImportCache small(client_, {.mappings = 5});
  std::atomic<bool> stop{false};
  std::atomic<broker::SegmentId> latest{0};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      while (!stop.load()) {
        const auto id = latest.load();
        if (id == 0) continue;
        try {
          const auto lease = small.map(id);
          // Each segment holds its own id: never another one's bytes.
          if (*reinterpret_cast<const std::uint64_t*>(lease.data()) != id) ++wrong;
        } catch (const Error& error) {
          if (error.code() != ErrorCode::not_found) ++wrong;
        }
      }
    });
  std::optional<Owned> last;
  for (int round = 0; round < 300; ++round) {
    auto owned = make(4096, 0);
    *static_cast<std::uint64_t*>(owned.memory->data()) = owned.id;
    latest.store(owned.id);
    std::this_thread::yield();
    last.emplace(std::move(owned));  // frees the one before
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  last.reset();
  small.drop_retired();
  EXPECT_EQ(small.statistics().mappings, 0u);
}

TEST_F(ImportCacheTest, ABrokerThatIsGoneIsAnErrorAndWhatIsMappedStays) {
  const auto a = make(4096, 1);
  const auto lease = cache_.map(a.id);
  server_.stop();
  EXPECT_EQ(first(cache_.map(a.id)), 1);
  EXPECT_ERROR(cache_.map(a.id + 1), ErrorCode::broker_lost, "broker");
  EXPECT_EQ(first(lease), 1);
}

}  // namespace
}  // namespace tugline::memory

// SPDX-License-Identifier: Apache-2.0
// Members and a broker over real sockets: joining, segments, values, leaving.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/shared_memory.h"
#include "expect_error.h"
#include "support.h"

namespace tugline::broker::testing {
namespace {

using core::MemberState;

TEST(Join, GivesEachMemberASlotAndOneControlSegment) {
  ThreadedServer server;
  const auto first = server.join(0, 2);
  const auto second = server.join(1, 2);
  EXPECT_NE(first->member(), second->member());
  EXPECT_EQ(first->control().world_size, 2U);
  EXPECT_EQ(first->control().capacity, core::kMaxMembers);
  // Both map the same memory.
  auto& mine = first->control().members[second->member()];
  EXPECT_EQ(core::state_of(mine), MemberState::alive);
  EXPECT_EQ(mine.rank.load(), 1U);
  EXPECT_EQ(second->job(), server.job());
  EXPECT_EQ(second->socket_path(), server.socket_path());
}

TEST(Join, RefusesWhatDoesNotFitAndNamesBothSides) {
  ThreadedServer server;
  const auto first = server.join(0, 2);
  EXPECT_ERROR(server.join(1, 3), ErrorCode::mismatch, "world size 3, the job has 2");
  EXPECT_ERROR(server.join(2, 2), ErrorCode::invalid_argument, "rank 2");
  EXPECT_ERROR(server.join(-1, 2), ErrorCode::invalid_argument, "rank -1");
  EXPECT_ERROR(server.join(0, 2), ErrorCode::already_exists, "rank 0 has joined already");
  auto other_job = server.request(1, 2);
  other_job.socket_path = server.socket_path();
  other_job.job = "another";
  EXPECT_ERROR(Client::join(other_job), ErrorCode::mismatch, "another");
  auto foreign = server.request(1, 2);
  foreign.token = std::string(64, '0');
  EXPECT_ERROR(Client::join(foreign), ErrorCode::permission_denied, "token is not this job's");
  foreign.token = "short";
  EXPECT_ERROR(Client::join(foreign), ErrorCode::permission_denied, "64 hexadecimal digits");
  EXPECT_EQ(server.join(1, 2)->rank(), 1);
}

TEST(Join, WithoutABrokerSaysSo) {
  JoinRequest request;
  request.job = fresh_job();
  request.spawn_broker = false;
  EXPECT_ERROR(Client::join(request), ErrorCode::not_found, "no broker answers");
}

TEST(Join, ALeaverOpensItsRankAgainInAnotherSlot) {
  ThreadedServer server;
  const auto stays = server.join(1, 2);
  auto first = server.join(0, 2);
  const auto slot = first->member();
  auto& control = stays->control();
  const auto alarm = control.alarm.load();
  first->leave();
  EXPECT_EQ(core::state_of(control.members[slot]), MemberState::left);
  EXPECT_NE(control.alarm.load(), alarm);
  const auto again = server.join(0, 2);
  EXPECT_NE(again->member(), slot);
  EXPECT_EQ(core::state_of(control.members[slot]), MemberState::left);
}

TEST(Segments, AreMadeOnceAndSeenByAll) {
  ThreadedServer server;
  const auto one = server.join(0, 2);
  const auto two = server.join(1, 2);
  auto made = one->open_or_create("weights", 8192, Lifetime::referenced);
  EXPECT_TRUE(made.created);
  base::Mapping mine(made.descriptor.get(), made.bytes, base::Access::read_write);
  std::memset(mine.data(), 7, 8192);
  auto opened = two->open_or_create("weights", 8192, Lifetime::referenced);
  EXPECT_FALSE(opened.created);
  EXPECT_EQ(opened.id, made.id);
  base::Mapping theirs(opened.descriptor.get(), opened.bytes, base::Access::read_only);
  EXPECT_EQ(std::memcmp(mine.data(), theirs.data(), 8192), 0);
  const auto imported = two->import(made.id);
  EXPECT_EQ(imported.bytes, 8192U);
}

TEST(Segments, GoWithTheirLastReference) {
  ThreadedServer server;
  const auto one = server.join(0, 2);
  const auto two = server.join(1, 2);
  const auto id = one->create("scratch", 4096, Lifetime::referenced).id;
  two->open("scratch");
  two->import(id);
  one->release(id);
  two->release(id);
  EXPECT_EQ(two->open("scratch").id, id);  // two's second reference kept it
  two->release(id);
  two->release(id);
  EXPECT_ERROR(one->open("scratch"), ErrorCode::not_found, "scratch");
  EXPECT_ERROR(one->import(id), ErrorCode::not_found, "not held");
  EXPECT_ERROR(two->release(id), ErrorCode::not_found, "no reference");
}

TEST(Segments, PersistentOnesOutliveAllMembers) {
  ThreadedServer server;
  SegmentId id = 0;
  {
    const auto only = server.join();
    auto made = only->create("model", 4096, Lifetime::persistent);
    id = made.id;
    base::Mapping mapping(made.descriptor.get(), made.bytes, base::Access::read_write);
    std::strcpy(static_cast<char*>(mapping.data()), "trained");
  }
  const auto next = server.join();
  auto found = next->open("model");
  EXPECT_EQ(found.id, id);
  base::Mapping mapping(found.descriptor.get(), found.bytes, base::Access::read_only);
  EXPECT_STREQ(static_cast<const char*>(mapping.data()), "trained");
  next->remove("model");
  EXPECT_ERROR(next->open("model"), ErrorCode::not_found, "model");
  next->release(id);
  EXPECT_ERROR(next->import(id), ErrorCode::not_found, "not held");
  EXPECT_ERROR(next->remove("model"), ErrorCode::not_found, "model");
}

TEST(Segments, AreKeptFromWhenSomebodySaysSo) {
  ThreadedServer server;
  const auto one = server.join(0, 2);
  const auto two = server.join(1, 2);
  const auto make = [&](const char* name) {
    return one->open_or_create(name, 4096, Lifetime::referenced).id;
  };
  const auto kept = make("kept");
  const auto removed = make("removed");
  EXPECT_ERROR(two->keep(kept), ErrorCode::not_found, "holds no reference");
  EXPECT_EQ(two->open("kept").id, kept);
  two->keep(kept);
  two->keep(kept);
  one->remove("removed");
  one->keep(removed);  // nothing: nobody could find it any more
  for (const auto id : {kept, removed}) one->release(id);
  two->release(kept);
  EXPECT_EQ(one->open("kept").id, kept);
  EXPECT_EQ(one->usage(one->member()).job_segments, 1u);
}

TEST(Segments, NamesAndSizesAreChecked) {
  ThreadedServer server;
  const auto member = server.join();
  const auto made = member->create("a", 4096, Lifetime::referenced);
  EXPECT_ERROR(member->create("a", 4096, Lifetime::referenced), ErrorCode::already_exists, "\"a\"");
  EXPECT_ERROR(member->open_or_create("a", 8192, Lifetime::referenced), ErrorCode::mismatch,
               "4096 bytes, 8192 are asked");
  EXPECT_ERROR(member->open(""), ErrorCode::invalid_argument, "empty");
  EXPECT_ERROR(member->create("zero", 0, Lifetime::referenced), ErrorCode::invalid_argument, "0");
  EXPECT_ERROR(member->create(std::string(256, 'x'), 4096, Lifetime::referenced), ErrorCode::invalid_argument,
               "too long");
  // The failed open_or_create left no reference behind.
  member->release(made.id);
  EXPECT_ERROR(member->open("a"), ErrorCode::not_found, "\"a\"");
}

TEST(Segments, RacersForOneNameGetOneSegment) {
  ThreadedServer server;
  constexpr int kRacers = 8;
  std::vector<std::shared_ptr<Client>> members;
  for (int rank = 0; rank < kRacers; ++rank) members.push_back(server.join(rank, kRacers));
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> creators{0};
    std::vector<SegmentId> ids(kRacers);
    std::vector<std::thread> threads;
    for (int i = 0; i < kRacers; ++i)
      threads.emplace_back([&, i] {
        const auto segment = members[static_cast<std::size_t>(i)]->open_or_create(
            "race-" + std::to_string(round), 4096, Lifetime::referenced);
        ids[static_cast<std::size_t>(i)] = segment.id;
        if (segment.created) ++creators;
      });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(creators, 1);
    EXPECT_THAT(ids, ::testing::Each(ids[0]));
  }
}

TEST(Values, ArePutGotAndReplaced) {
  ThreadedServer server;
  const auto one = server.join(0, 2);
  const auto two = server.join(1, 2);
  EXPECT_EQ(two->try_get("k"), std::nullopt);
  one->put("k", "v1");
  EXPECT_EQ(two->get("k", 1s), "v1");
  two->put("k", std::string("v\0two", 5));
  EXPECT_EQ(one->try_get("k"), std::string("v\0two", 5));
  one->put("large", std::string(3072, 'x'));
  EXPECT_EQ(two->get("large", 1s).size(), 3072U);
  EXPECT_ERROR(one->put("huge", std::string(3073, 'x')), ErrorCode::invalid_argument, "too long");
}

TEST(Values, AWaitingGetEndsWithThePutOrItsDeadline) {
  ThreadedServer server;
  const auto one = server.join(0, 2);
  const auto two = server.join(1, 2);
  std::string seen;
  std::thread waits([&] { seen = one->get("late", 20s); });
  // The same member's other threads are served meanwhile.
  EXPECT_EQ(one->try_get("other"), std::nullopt);
  two->put("late", "here");
  waits.join();
  EXPECT_EQ(seen, "here");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_ERROR(one->get("never", 50ms), ErrorCode::timed_out, "nobody put \"never\" within 50 ms");
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took, 50ms);
  EXPECT_LT(took, 5s);
}

TEST(Values, AGetDoesNotRunOutWhileItsProcessIsStopped) {
  ThreadedServer server;
  const Gate about_to_ask;
  Child child([&] {
    const auto member = server.join(1, 2);
    about_to_ask.open();
    return member->get("late", 2s) == "here" ? 0 : 1;
  });
  ASSERT_TRUE(about_to_ask.wait());
  ASSERT_TRUE(eventually([&] { return server.statistics().waiting_gets == 1; }));
  child.kill(SIGSTOP);
  // For longer than it would wait: the broker ends the wait meanwhile.
  ASSERT_TRUE(eventually([&] { return server.statistics().waiting_gets == 0; }));
  child.kill(SIGCONT);
  ASSERT_TRUE(eventually([&] { return server.statistics().waiting_gets == 1; }))
      << "it asks for the rest of its time";
  server.join(0, 2)->put("late", "here");
  EXPECT_EQ(child.wait(), 0);
}

TEST(Values, ManyThreadsOfOneMemberShareItsSocket) {
  ThreadedServer server;
  const auto one = server.join(0, 2);
  const auto two = server.join(1, 2);
  constexpr int kThreads = 16;
  constexpr int kRounds = 20;
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < kThreads; i += 2) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < kRounds; ++round) {
        const auto key = std::to_string(i) + "/" + std::to_string(round);
        if (one->get(key, 20s) == "value of " + key) ++right;
      }
    });
    threads.emplace_back([&, i] {
      for (int round = 0; round < kRounds; ++round) {
        const auto key = std::to_string(i) + "/" + std::to_string(round);
        two->put(key, "value of " + key);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, kThreads / 2 * kRounds);
}

TEST(Values, OfAnEarlierRunAreGone) {
  ThreadedServer server;
  {
    const auto first = server.join();
    first->put("address", "old");
  }
  EXPECT_EQ(server.join()->try_get("address"), std::nullopt);
}

TEST(Values, OfARankThatWasQuickStayForTheSlowOne) {
  ThreadedServer server;
  {
    const auto quick = server.join(0, 2);
    quick->put("from", "rank 0");
  }
  EXPECT_EQ(server.join(1, 2)->try_get("from"), "rank 0");
}

TEST(Broker, RemovesItsFilesAndTellsItsMembers) {
  ThreadedServer server;
  const auto member = server.join();
  EXPECT_THAT(entries_of(server.directory()), ::testing::UnorderedElementsAre("broker.sock", "token"));
  EXPECT_EQ(member->control().broker_lost.load(), 0U);
  const auto alarm = member->control().alarm.load();
  const auto directory = server.directory();
  server.stop();
  EXPECT_NE(member->control().broker_lost.load(), 0U);
  EXPECT_NE(member->control().alarm.load(), alarm);
  EXPECT_FALSE(std::filesystem::exists(directory));
  EXPECT_ERROR(member->put("k", "v"), ErrorCode::broker_lost, server.socket_path());
  EXPECT_ERROR(member->try_get("k"), ErrorCode::broker_lost, server.socket_path());
}

TEST(Broker, ASecondOneOnTheSameJobIsRefused) {
  ThreadedServer server;
  EXPECT_ERROR(Endpoint(place_of({}, server.job()), std::string()), ErrorCode::already_exists,
               "another broker serves");
  EXPECT_EQ(server.join()->rank(), 0);  // and did the first no harm
}

}  // namespace
}  // namespace tugline::broker::testing

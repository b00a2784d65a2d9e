// SPDX-License-Identifier: Apache-2.0
// Members that die, and forked children that are none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>

#include "base/shared_memory.h"
#include "expect_error.h"
#include "process_server.h"

namespace tugline::broker::testing {
namespace {

using core::MemberState;

bool becomes(const Client& seen_by, MemberId member, MemberState state) {
  return eventually([&] { return core::state_of(seen_by.control().members[member]) == state; });
}

/// Of the member with this rank, looked up in the control segment.
MemberId slot_of(const Client& seen_by, std::uint32_t rank) {
  MemberId found = core::kMaxMembers;
  for (MemberId id = 0; id < core::kMaxMembers; ++id) {
    const auto& slot = seen_by.control().members[id];
    if (core::state_of(slot) != MemberState::empty && slot.rank.load() == rank) found = id;
  }
  return found;
}

TEST(Death, IsMarkedAndLeavesNothing) {
  ProcessServer server;
  const auto survivor = server.join(0, 2);
  const auto before = server.descriptors().size();
  const auto alarm = survivor->control().alarm.load();
  Gate ready;
  Child victim([&] {
    const auto member = server.join(1, 2);
    member->create("theirs", 1 << 20, Lifetime::referenced);
    member->open("theirs");
    member->create("kept", 4096, Lifetime::persistent);
    ready.open();
    member->get("never", 60s);
    return 1;
  });
  ASSERT_TRUE(ready.wait());
  const auto slot = slot_of(*survivor, 1);
  EXPECT_EQ(core::state_of(survivor->control().members[slot]), MemberState::alive);
  EXPECT_EQ(survivor->open("theirs").bytes, 1U << 20);
  victim.kill(SIGKILL);
  ASSERT_TRUE(becomes(*survivor, slot, MemberState::dead));
  EXPECT_NE(core::cause_of(survivor->control().members[slot]), core::LossCause::none);
  EXPECT_NE(survivor->control().alarm.load(), alarm);
  EXPECT_NE(survivor->control().members[slot].died_at_ns.load(), 0U);
  // What the survivor refers to stays, until it lets go.
  EXPECT_EQ(survivor->open("theirs").bytes, 1U << 20);
  const auto id = survivor->open("theirs").id;
  for (int i = 0; i < 3; ++i) survivor->release(id);
  EXPECT_ERROR(survivor->open("theirs"), ErrorCode::not_found, "theirs");
  EXPECT_EQ(survivor->open("kept").bytes, 4096U);
  survivor->remove("kept");
  survivor->release(survivor->import(1 + id).id);
  survivor->release(1 + id);
  victim.wait();
  EXPECT_TRUE(eventually([&] { return server.descriptors().size() == before; }))
      << ::testing::PrintToString(server.descriptors());
}

TEST(Death, ARankThatComesBackGetsAnotherSlot) {
  ProcessServer server;
  const auto survivor = server.join(0, 2);
  MemberId last = core::kMaxMembers;
  for (int round = 0; round < 5; ++round) {
    Gate ready;
    Child victim([&] {
      const auto member = server.join(1, 2);
      ready.open();
      return member->get("never", 60s).empty() ? 0 : 1;
    });
    ASSERT_TRUE(ready.wait());
    const auto slot = slot_of(*survivor, 1);
    EXPECT_NE(slot, last);
    EXPECT_EQ(core::state_of(survivor->control().members[slot]), MemberState::alive);
    victim.kill(SIGKILL);
    victim.wait();
    // At once: who has been waited for has ended, whether the broker has heard of it or not.
    last = slot;
  }
  EXPECT_EQ(server.join(1, 2)->rank(), 1);
}

TEST(Death, OfAHundredLeavesNothing) {
  ProcessServer server;
  const auto survivor = server.join(0, 2);
  const auto before = server.descriptors().size();
  for (int round = 0; round < 100; ++round) {
    Child victim([&] {
      const auto member = server.join(1, 2);
      const auto segment = member->create("s" + std::to_string(round), 1 << 16, Lifetime::referenced);
      const base::Mapping mapping(segment.descriptor.get(), segment.bytes, base::Access::read_write);
      std::memset(mapping.data(), 1, 1 << 16);
      ::kill(::getpid(), SIGKILL);
      return 0;
    });
    EXPECT_EQ(victim.wait(), 128 + SIGKILL);
  }
  EXPECT_TRUE(eventually([&] { return server.descriptors().size() == before; }))
      << ::testing::PrintToString(server.descriptors());
}

TEST(Death, ByExitWithoutGoodByeIsDeath) {
  ProcessServer server;
  const auto survivor = server.join(0, 2);
  Child victim([&] {
    const auto member = server.join(1, 2);
    ::_exit(0);
    return 1;
  });
  EXPECT_EQ(victim.wait(), 0);
  EXPECT_TRUE(becomes(*survivor, slot_of(*survivor, 1), MemberState::dead));
}

TEST(Death, AStoppedMemberDelaysNobody) {
  ProcessServer server;
  const auto survivor = server.join(0, 2);
  Gate ready;
  Child stopped([&] {
    const auto member = server.join(1, 2);
    ready.open();
    return member->get("go", 60s) == "on" ? 0 : 1;
  });
  ASSERT_TRUE(ready.wait());
  stopped.kill(SIGSTOP);
  for (int i = 0; i < 100; ++i) survivor->put("key", std::to_string(i));
  EXPECT_EQ(core::state_of(survivor->control().members[slot_of(*survivor, 1)]), MemberState::alive);
  survivor->put("go", "on");
  stopped.kill(SIGCONT);
  EXPECT_EQ(stopped.wait(), 0);
}

TEST(Fork, AChildThatNeverCallsUsChangesNothing) {
  ProcessServer server;
  const auto observer = server.join(0, 2);
  auto member = server.join(1, 2);
  const auto slot = member->member();
  const auto alarm = observer->control().alarm.load();
  const auto unchanged = [&] {
    observer->put("a", "1");  // the broker has handled what came before
    EXPECT_EQ(member->get("a", 5s), "1");
    EXPECT_EQ(core::state_of(observer->control().members[slot]), MemberState::alive);
    EXPECT_EQ(observer->control().alarm.load(), alarm);
  };
  {
    Child exits([] { return 0; });
    EXPECT_EQ(exits.wait(), 0);
    unchanged();
  }
  {
    Gate ready;
    Gate never;
    Child killed([&] {
      ready.open();
      return never.wait(60s) ? 0 : 1;
    });
    ASSERT_TRUE(ready.wait());
    unchanged();
    killed.kill(SIGKILL);
    killed.wait();
    unchanged();
  }
  {
    // One that runs all destructors of what it has inherited.
    Child destroys([&] {
      member.reset();
      return 0;
    });
    EXPECT_EQ(destroys.wait(), 0);
    unchanged();
  }
  {
    // And one that wrongly uses it is told so, and harms nobody.
    Child uses([&] {
      try {
        member->put("from", "child");
      } catch (const Error& error) {
        return error.code() == ErrorCode::invalid_usage ? 0 : 1;
      }
      return 2;
    });
    EXPECT_EQ(uses.wait(), 0);
    unchanged();
    EXPECT_EQ(member->try_get("from"), std::nullopt);
  }
}

TEST(Fork, AMembersDeathIsSeenWhileItsChildLives) {
  ProcessServer server;
  const auto survivor = server.join(0, 2);
  Gate ready;
  Gate end_of_grandchild;
  Gate grandchild_ended;
  Child victim([&] {
    const auto member = server.join(1, 2);
    if (::fork() == 0) {
      // Holds the member's socket for as long as the test runs.
      end_of_grandchild.wait(60s);
      grandchild_ended.open();
      ::_exit(0);
    }
    ready.open();
    return member->get("never", 60s).empty() ? 0 : 1;
  });
  ASSERT_TRUE(ready.wait());
  const auto slot = slot_of(*survivor, 1);
  EXPECT_EQ(core::state_of(survivor->control().members[slot]), MemberState::alive);
  victim.kill(SIGKILL);
  victim.wait();
  EXPECT_TRUE(becomes(*survivor, slot, MemberState::dead));
  // The broker has let go of the connection too: the rank can be taken again.
  EXPECT_EQ(server.join(1, 2)->rank(), 1);
  end_of_grandchild.open();
  EXPECT_TRUE(grandchild_ended.wait());
}

TEST(BrokerDeath, IsAnErrorForAllAndBlocksNobody) {
  ProcessServer server;
  const auto one = server.join(0, 2);
  const auto two = server.join(1, 2);
  const auto segment = one->create("s", 4096, Lifetime::persistent);
  const base::Mapping mapping(segment.descriptor.get(), segment.bytes, base::Access::read_write);
  std::atomic<bool> told{false};
  std::thread waits([&] {
    EXPECT_ERROR(two->get("never", 60s), ErrorCode::broker_lost, "is gone");
    told = true;
  });
  const auto start = std::chrono::steady_clock::now();
  ::kill(server.pid(), SIGKILL);
  waits.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
  EXPECT_TRUE(told);
  EXPECT_ERROR(one->put("k", "v"), ErrorCode::broker_lost, "is gone");
  // Mappings stay.
  std::memset(mapping.data(), 1, 4096);
}

TEST(BrokerDeath, ByDecisionIsWrittenInTheControlSegment) {
  ProcessServer server;
  const auto member = server.join(0, 1);
  const auto alarm = member->control().alarm.load();
  server.process().stop();
  EXPECT_NE(member->control().broker_lost.load(), 0U);
  EXPECT_NE(member->control().alarm.load(), alarm);
  EXPECT_FALSE(std::filesystem::exists(server.directory()));
}

}  // namespace
}  // namespace tugline::broker::testing

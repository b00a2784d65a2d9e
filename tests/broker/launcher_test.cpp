// SPDX-License-Identifier: Apache-2.0
// What a launcher says of ranks that end before the broker has met them, and who may say it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>
#include <memory>

#include "broker/identity.h"
#include "broker/launcher_link.h"
#include "broker/process_status.h"
#include "expect_error.h"
#include "support.h"

namespace tugline::broker::testing {
namespace {

std::unique_ptr<LauncherLink> link_to(const ThreadedServer& server) {
  return std::make_unique<LauncherLink>(server.socket_path(), server.job(), server.token_hex());
}

/// The slot that says that `rank` is absent; none if there is none.
const core::MemberSlot* absence(const Client& member, std::uint32_t rank) {
  for (const auto& slot : member.control().members)
    if (core::cause_of(slot) == core::LossCause::absent && slot.rank.load() == rank) return &slot;
  return nullptr;
}

TEST(Launcher, ARankThatEndedBeforeItJoinedIsDeadToTheOthers) {
  ThreadedServer server;
  const auto member = server.join(0, 3);
  const auto alarm = member->control().alarm.load();
  auto link = link_to(server);
  link->rank_ended(2, {.exit_code = 3});
  ASSERT_TRUE(eventually([&] { return absence(*member, 2) != nullptr; }));
  const auto* slot = absence(*member, 2);
  EXPECT_EQ(core::state_of(*slot), core::MemberState::dead);
  EXPECT_EQ(core::ProcessEnd::decode(slot->process_end.load()), (core::ProcessEnd{3, 0}));
  EXPECT_TRUE(eventually([&] { return member->control().alarm.load() != alarm; }));
  EXPECT_EQ(absence(*member, 1), nullptr);
}

TEST(Launcher, WhatWasSaidBeforeTheFirstMemberCounts) {
  ThreadedServer server;
  auto link = link_to(server);
  link->rank_ended(1, {.signal = 9});
  // The two connections are read in any order: the first member may come before the word, the last one not.
  ASSERT_TRUE(eventually([&] {
    const auto member = server.join(0, 2);
    return absence(*member, 1) != nullptr;
  }));
}

TEST(Launcher, ANewStartTakesItBack) {
  ThreadedServer server;
  const auto member = server.join(0, 3);
  auto link = link_to(server);
  link->rank_ended(2, {.exit_code = 3});
  ASSERT_TRUE(eventually([&] { return absence(*member, 2) != nullptr; }));
  link->rank_starts(2);
  EXPECT_TRUE(eventually([&] { return absence(*member, 2) == nullptr; }));
  link->rank_ended(2, {.exit_code = 4});
  ASSERT_TRUE(eventually([&] { return absence(*member, 2) != nullptr; }));
  // Whoever joins is there, whatever was said.
  const auto late = server.join(2, 3);
  EXPECT_EQ(absence(*member, 2), nullptr);
  EXPECT_EQ(core::state_of(member->control().members[late->member()]), core::MemberState::alive);
}

TEST(Launcher, ARankThatHasJoinedIsNotTouched) {
  ThreadedServer server;
  const auto member = server.join(0, 3);
  const auto other = server.join(1, 3);
  auto link = link_to(server);
  link->rank_ended(1, {.exit_code = 3});
  link->rank_ended(2, {.exit_code = 3});
  ASSERT_TRUE(eventually([&] { return absence(*member, 2) != nullptr; }));
  EXPECT_EQ(absence(*member, 1), nullptr);
  EXPECT_EQ(core::state_of(member->control().members[other->member()]), core::MemberState::alive);
}

TEST(Launcher, ItsGoingTakesAllBack) {
  ThreadedServer server;
  const auto member = server.join(0, 3);
  auto link = link_to(server);
  link->rank_ended(1, {.exit_code = 3});
  ASSERT_TRUE(eventually([&] { return absence(*member, 1) != nullptr; }));
  link.reset();
  EXPECT_TRUE(eventually([&] { return absence(*member, 1) == nullptr; }));
}

TEST(Launcher, IsTheOnlyOneUntilItGoes) {
  ThreadedServer server;
  const auto member = server.join(0, 3);
  for (int round = 0; round < 50; ++round) {
    auto link = link_to(server);
    EXPECT_ERROR(link_to(server), ErrorCode::already_exists,
                 "a job is running at this broker, started by process " + std::to_string(::getpid()));
    link->rank_ended(1, {.exit_code = 3});
    EXPECT_TRUE(eventually([&] { return absence(*member, 1) != nullptr; }));
    // The next one comes at once: it must not be refused for one that has gone.
  }
}

TEST(Launcher, AWaitForAValueNamesWhoWillNotPutIt) {
  ThreadedServer server;
  const auto member = server.join(0, 3);
  auto link = link_to(server);
  link->rank_ended(2, {.signal = 11});
  ASSERT_TRUE(eventually([&] { return absence(*member, 2) != nullptr; }));
  EXPECT_ERROR(member->get("address", 1ms), ErrorCode::timed_out,
               "rank 2 was killed by signal 11 (Segmentation fault) before it joined");
}

TEST(Launcher, NobodyWaitsForTheAbsentAtTheEndOfAGeneration) {
  ServerOptions options;
  options.absent_ranks_within = 60s;
  ThreadedServer server(std::move(options));
  auto link = link_to(server);
  {
    const auto member = server.join(0, 2);
    member->put("old", "value");
    link->rank_ended(1, {.exit_code = 0});
    ASSERT_TRUE(eventually([&] { return absence(*member, 1) != nullptr; }));
    member->leave();
  }
  EXPECT_TRUE(eventually([&] { return !server.join(0, 2)->try_get("old"); }));
}

TEST(Launcher, IsTheOneWithTheTokenThatTheBrokerWasStartedFor) {
  ThreadedServer server;
  EXPECT_ERROR(LauncherLink(server.socket_path(), server.job(), std::string(64, '1')),
               ErrorCode::permission_denied, "token");
  Child other([] { return ::pause(); });
  ServerOptions options;
  options.owner = pidfd_of(other.pid());
  ThreadedServer owned(std::move(options));
  EXPECT_ERROR(link_to(owned), ErrorCode::permission_denied,
               "is not the one that this broker was started for");
  ServerOptions own;
  own.owner = own_pidfd();
  ThreadedServer mine(std::move(own));
  EXPECT_NO_THROW(link_to(mine));
}

TEST(Launcher, StrangeMessagesHurtNobody) {
  ThreadedServer server;
  const auto member = server.join(0, 2);
  // A member is no launcher.
  const auto raw = join_raw(server, 1, 2);
  send_message_raw(raw.get(), core::RankEnded{0, 3, 0}, 7);
  EXPECT_TRUE(receive_raw(raw.get()).closed);
  // Nor is a launcher a member, and its ranks have bounds.
  const auto launcher = server.connect();
  core::AttachLauncher attach;
  attach.token = server.token();
  send_message_raw(launcher.get(), attach, 1);
  EXPECT_EQ(receive_raw(launcher.get()).type, static_cast<std::uint16_t>(core::MessageType::done));
  for (const std::int32_t rank : {-1, static_cast<int>(core::kMaxMembers), std::numeric_limits<int>::min()}) {
    send_message_raw(launcher.get(), core::RankEnded{rank, 3, 0}, 2);
    EXPECT_EQ(receive_raw(launcher.get()).failure.code, ErrorCode::invalid_argument);
    send_message_raw(launcher.get(), core::RankStarts{rank}, 3);
    EXPECT_EQ(receive_raw(launcher.get()).failure.code, ErrorCode::invalid_argument);
  }
  // Outside the world, inside the bounds: nobody waits for it.
  send_message_raw(launcher.get(), core::RankEnded{200, 3, 0}, 4);
  EXPECT_EQ(receive_raw(launcher.get()).type, static_cast<std::uint16_t>(core::MessageType::done));
  EXPECT_EQ(absence(*member, 200), nullptr);
  send_message_raw(launcher.get(), core::PutValue{"k", "v"}, 5);
  EXPECT_TRUE(receive_raw(launcher.get()).closed);
  member->put("k", "still served");
}

TEST(ProcessEnd, IsOneWordAndASentence) {
  for (int code : {0, 1, 127, 255})
    EXPECT_EQ(core::ProcessEnd::decode(core::ProcessEnd{code, 0}.encode()), (core::ProcessEnd{code, 0}));
  for (int signal : {1, 9, 64})
    EXPECT_EQ(core::ProcessEnd::decode(core::ProcessEnd{0, signal}.encode()), (core::ProcessEnd{0, signal}));
  EXPECT_EQ(describe({3, 0}), "ended with exit code 3");
  EXPECT_EQ(describe({0, 9}), "was killed by signal 9 (Killed)");
}

}  // namespace
}  // namespace tugline::broker::testing

// SPDX-License-Identifier: Apache-2.0
// Who holds what: as a member asks it, and as somebody sees it who only looks.
#include "broker/observer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "expect_error.h"
#include "support.h"

namespace tugline::broker::testing {
namespace {

Observer observe(const ThreadedServer& server) {
  return {server.socket_path(), server.job(), server.token_hex()};
}

TEST(Usage, IsDividedByKindAndImports) {
  ThreadedServer server;
  const auto one = server.join(0, 2);
  const auto two = server.join(1, 2);
  one->open_or_create("comm", 1000, Lifetime::referenced);
  const auto buffer = one->create("", 2000, Lifetime::referenced).id;
  one->open_or_create("named", 4000, Lifetime::persistent, SegmentKind::named);
  two->import(buffer);
  two->open("comm");
  const auto first = two->usage(one->member());
  EXPECT_EQ(first.scratch_bytes, 500u);
  EXPECT_EQ(first.buffer_bytes, 2000u);
  EXPECT_EQ(first.named_bytes, 4000u);
  EXPECT_EQ(first.imported_bytes, 0u);
  EXPECT_EQ(first.member_segments, 3u);
  EXPECT_EQ(first.member_references, 3u);
  EXPECT_EQ(first.job_bytes, 7000u);
  EXPECT_EQ(first.job_segments, 3u);
  const auto second = two->usage(two->member());
  EXPECT_EQ(second.scratch_bytes, 500u);
  EXPECT_EQ(second.member_bytes(), 500u);
  EXPECT_EQ(second.imported_bytes, 2000u) << "scratch that is shared is nobody's import";
  EXPECT_EQ(second.member_references, 2u);
  two->release(buffer);
  EXPECT_EQ(two->usage(two->member()).imported_bytes, 0u);
}

TEST(Usage, ScratchIsSharedByThoseWhoUseItAndByNobodyElse) {
  ServerOptions options;
  options.limits = {.member_bytes = 5000};
  ThreadedServer server(std::move(options));
  const auto one = server.join(0, 3);
  auto two = server.join(1, 3);
  auto three = server.join(2, 3);
  const auto made = one->open_or_create("comm", 4001, Lifetime::referenced).id;
  EXPECT_ERROR(one->create("", 3000, Lifetime::referenced), ErrorCode::out_of_memory,
               "4001 of the member's 5000");
  two->open("comm");
  two->open("comm");
  EXPECT_EQ(one->usage(one->member()).scratch_bytes + one->usage(two->member()).scratch_bytes, 4001u);
  EXPECT_EQ(one->usage(two->member()).scratch_bytes / 2, 1000u);
  EXPECT_EQ(one->usage(three->member()).scratch_bytes, 0u);
  // There is room for it now.
  one->release(one->create("", 2500, Lifetime::referenced).id);
  one->release(made);
  EXPECT_EQ(one->usage(one->member()).scratch_bytes, 0u);
  EXPECT_EQ(one->usage(two->member()).scratch_bytes, 4001u);
  EXPECT_EQ(one->usage(core::Usage::kNobody).scratch_bytes, 0u);
}

TEST(Usage, WhatTheDeadHaveLeftBelongsToNobody) {
  ThreadedServer server;
  const auto one = server.join(0, 2);
  {
    const auto two = server.join(1, 2);
    two->open_or_create("named", 4000, Lifetime::persistent, SegmentKind::named);
    two->create("", 2000, Lifetime::referenced);
  }
  const auto left = one->usage(core::Usage::kNobody);
  EXPECT_EQ(left.named_bytes, 4000u);
  EXPECT_EQ(left.member_bytes(), 4000u);
  EXPECT_EQ(left.job_bytes, 4000u);
}

TEST(Usage, TellsTheLimitsAndTheBrokersDescriptors) {
  ServerOptions options;
  options.limits = {.member_bytes = 5000, .job_bytes = 9000};
  options.descriptor_limit = 200;
  ThreadedServer server(std::move(options));
  const auto one = server.join();
  const auto before = one->usage(one->member());
  EXPECT_EQ(before.member_limit_bytes, 5000u);
  EXPECT_EQ(before.job_limit_bytes, 9000u);
  EXPECT_EQ(before.broker_descriptor_limit, 200u);
  EXPECT_EQ(before.broker_pid, static_cast<std::uint32_t>(::getpid()));
  one->create("", 4096, Lifetime::referenced);
  EXPECT_EQ(one->usage(one->member()).broker_descriptors, before.broker_descriptors + 1);
}

TEST(Observer, SeesTheMembersByRankAndWhatTheyHold) {
  ThreadedServer server;
  const auto two = server.join(1, 3);
  const auto one = server.join(0, 3);
  two->create("", 2000, Lifetime::referenced);
  const auto account = observe(server).look();
  EXPECT_EQ(account.job, server.job());
  EXPECT_EQ(account.world_size, 3);
  ASSERT_EQ(account.members.size(), 2u);
  EXPECT_EQ(account.members[0].rank, 0);
  EXPECT_EQ(account.members[1].rank, 1);
  EXPECT_EQ(account.members[1].usage.buffer_bytes, 2000u);
  EXPECT_EQ(account.members[1].pid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_EQ(account.left.job_bytes, 2000u);
}

TEST(Observer, IsNoMemberAndKeepsNobodyAlive) {
  ThreadedServer server;
  auto member = server.join(0, 1);
  auto observer = observe(server);
  EXPECT_EQ(observer.look().members.size(), 1u);
  EXPECT_EQ(server.statistics().members.load(), 1u);
  member.reset();
  EXPECT_TRUE(observer.look().members.empty());
}

TEST(Observer, MayLookBeforeAnybodyHasJoined) {
  ThreadedServer server;
  const auto account = observe(server).look();
  EXPECT_EQ(account.world_size, 0);
  EXPECT_TRUE(account.members.empty());
  EXPECT_EQ(account.left.job_segments, 0u);
}

TEST(Observer, NeedsTheTokenAndARunningBroker) {
  ThreadedServer server;
  EXPECT_ERROR(Observer(server.socket_path(), server.job(), std::string(64, '1')),
               ErrorCode::permission_denied, "token");
  EXPECT_ERROR(Observer(server.socket_path(), server.job(), "short"), ErrorCode::permission_denied,
               "64 hexadecimal");
  EXPECT_ERROR(Observer("", "no-such-job", ""), ErrorCode::not_found, "no-such-job");
}

TEST(Observer, MayOnlyAskForUsage) {
  ThreadedServer server;
  const auto socket = server.connect();
  core::AttachObserver attach;
  attach.token = server.token();
  send_message_raw(socket.get(), attach, 1);
  const auto welcome = receive_raw(socket.get());
  EXPECT_EQ(welcome.type, static_cast<std::uint16_t>(core::MessageType::welcome));
  EXPECT_TRUE(welcome.descriptors.empty()) << "nobody has joined: there is no control segment";
  send_message_raw(socket.get(), core::Usage{0}, 2);
  EXPECT_EQ(receive_raw(socket.get()).type, static_cast<std::uint16_t>(core::MessageType::usage_report));
  send_message_raw(socket.get(), core::PutValue{"k", "v"}, 3);
  EXPECT_TRUE(receive_raw(socket.get()).closed);
}

}  // namespace
}  // namespace tugline::broker::testing

// SPDX-License-Identifier: Apache-2.0
// Clients that break the protocol, lie, or do nothing: they are cut off, nobody else notices, nothing stays.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/shared_memory.h"
#include "broker/identity.h"
#include "broker/seqpacket.h"
#include "expect_error.h"
#include "support.h"

namespace tugline::broker::testing {
namespace {

using core::MessageType;

bool is(const RawReply& reply, MessageType type) {
  return reply.type == static_cast<std::uint16_t>(type);
}

std::vector<std::byte> frame_of_type(std::uint16_t type, std::span<const std::byte> body = {}) {
  core::FrameWriter frame;
  frame.begin(type, 1);
  for (const auto byte : body) frame.number(std::to_integer<std::uint8_t>(byte));
  frame.finish();
  return {frame.bytes().begin(), frame.bytes().end()};
}

class Hostile : public ::testing::Test {
 protected:
  // A good member that must be served whatever happens, and descriptors that must not grow.
  void SetUp() override {
    member_ = server_.join(0, 8);
    before_ = descriptors_held();
  }
  void TearDown() override {
    member_->put("still", "served");
    EXPECT_EQ(member_->get("still", 5s), "served");
    EXPECT_TRUE(eventually([&] {
      return server_.statistics().connections.load() == 1 && descriptors_held() <= before_;
    })) << server_.statistics().connections.load()
        << " connections, descriptors before: " << before_ << ", now: " << descriptors_held();
  }
  /// Without pidfds: the broker keeps those of members that were cut off until their process ends, and here
  /// that is this process.
  static std::size_t descriptors_held() {
    const auto all = descriptors_of(::getpid());
    return all.size() - static_cast<std::size_t>(count_matching(all, "pidfd"));
  }
  void expect_cut_off(const base::UniqueFd& socket) {
    const auto reply = receive_raw(socket.get());
    EXPECT_TRUE(reply.closed) << "got a frame of type " << reply.type << ": " << reply.failure.what_failed;
    EXPECT_TRUE(reply.descriptors.empty());
  }
  RawReply deposit(const base::UniqueFd& socket, const core::DepositSegment& message,
                   const std::vector<int>& descriptors) {
    core::FrameWriter frame;
    core::encode(message, 5, frame);
    send_raw(socket.get(), frame.bytes(), descriptors);
    return receive_raw(socket.get());
  }

  ThreadedServer server_;
  std::shared_ptr<Client> member_;
  std::size_t before_ = 0;
};

TEST_F(Hostile, WhatIsNoFrameEndsTheConnection) {
  core::FrameWriter good;
  core::encode(core::Done{}, 1, good);
  std::vector<std::vector<std::byte>> frames;
  frames.push_back({std::byte{0}});
  frames.emplace_back(15, std::byte{0});
  frames.emplace_back(16, std::byte{0});
  frames.emplace_back(core::kMaxFrameBytes, std::byte{0xff});
  frames.emplace_back(core::kMaxFrameBytes + 1, std::byte{0xff});
  frames.emplace_back(100'000, std::byte{1});
  frames.emplace_back(good.bytes().begin(), good.bytes().end());
  frames.back().push_back(std::byte{0});  // longer than its header says
  int count = 0;
  for (const auto joined : {false, true}) {
    for (const auto& frame : frames) {
      const auto socket = joined ? join_raw(server_, 1, 8) : server_.connect();
      send_raw(socket.get(), frame);
      expect_cut_off(socket);
      ++count;
    }
  }
  EXPECT_EQ(server_.statistics().violations.load(), static_cast<std::uint64_t>(count));
}

TEST_F(Hostile, OnlyRequestsAreRequests) {
  for (std::uint16_t type = 0; type < 40; ++type) {
    if (type == static_cast<std::uint16_t>(MessageType::leave)) continue;
    const std::vector<std::byte> body(3, std::byte{0xee});  // of no message
    const auto stranger = server_.connect();
    send_raw(stranger.get(), frame_of_type(type, body));
    expect_cut_off(stranger);
    const auto joined = join_raw(server_, 1, 8);
    send_raw(joined.get(), frame_of_type(type, body));
    expect_cut_off(joined);
  }
}

TEST_F(Hostile, StrangersMayOnlySayHelloAndOnlyOnce) {
  const auto stranger = server_.connect();
  send_message_raw(stranger.get(), core::GetValue{"still", 0}, 1);
  expect_cut_off(stranger);
  const auto joined = join_raw(server_, 1, 8);
  const auto pidfd = own_pidfd();
  send_message_raw(joined.get(), hello_of(server_, 2, 8), 2, {pidfd.get()});
  expect_cut_off(joined);
}

TEST_F(Hostile, AnotherProtocolVersionIsToldWhy) {
  const auto socket = server_.connect();
  core::FrameWriter frame;
  frame.begin(static_cast<std::uint16_t>(MessageType::hello), 3, core::kFrameVersion + 1);
  frame.number(std::uint64_t{0});
  ASSERT_TRUE(frame.finish());
  send_raw(socket.get(), frame.bytes());
  const auto reply = receive_raw(socket.get());
  EXPECT_EQ(reply.failure.code, ErrorCode::unsupported);
  EXPECT_THAT(reply.failure.what_failed,
              ::testing::HasSubstr("version " + std::to_string(core::kFrameVersion + 1) + ", the broker " +
                                   std::to_string(core::kFrameVersion)));
  expect_cut_off(socket);
}

TEST_F(Hostile, WrongTokensAreRefusedWhereverTheyDiffer) {
  for (std::size_t at : {0U, 15U, 31U}) {
    const auto socket = server_.connect();
    auto hello = hello_of(server_, 1, 8);
    hello.token[at] ^= 1;
    const auto pidfd = own_pidfd();
    send_message_raw(socket.get(), hello, 1, {pidfd.get()});
    EXPECT_EQ(receive_raw(socket.get()).failure.code, ErrorCode::permission_denied);
    expect_cut_off(socket);
  }
}

TEST_F(Hostile, HelloNeedsAPidfdOfItsSender) {
  const auto refused = [&](const std::vector<int>& descriptors) {
    const auto socket = server_.connect();
    send_message_raw(socket.get(), hello_of(server_, 1, 8), 1, descriptors);
    EXPECT_EQ(receive_raw(socket.get()).failure.code, ErrorCode::permission_denied);
    expect_cut_off(socket);
  };
  refused({});
  base::UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  refused({null.get()});
  base::UniqueFd process_folder(::open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  refused({process_folder.get()});
  Gate never;
  Child other([&] { return never.wait(60s) ? 0 : 1; });
  const auto pidfd = pidfd_of(other.pid());
  ASSERT_TRUE(pidfd);
  refused({pidfd.get()});
}

TEST_F(Hostile, DescriptorsWhereNoneBelongEndTheConnection) {
  base::UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  {
    const auto socket = join_raw(server_, 1, 8);
    send_message_raw(socket.get(), core::GetValue{"k", 0}, 1, {null.get()});
    expect_cut_off(socket);
  }
  {
    const auto socket = join_raw(server_, 1, 8);
    send_message_raw(socket.get(), core::DepositSegment{"s", 4096, 0, 0}, 1);
    expect_cut_off(socket);
  }
  {
    const auto socket = join_raw(server_, 1, 8);
    const auto memory = base::create_sealed_memfd("test", 4096);
    send_message_raw(socket.get(), core::DepositSegment{"s", 4096, 0, 0}, 1, {memory.get(), memory.get()});
    expect_cut_off(socket);
  }
  for (const auto joined : {false, true}) {
    const auto socket = joined ? join_raw(server_, 1, 8) : server_.connect();
    send_message_raw(socket.get(), core::DepositSegment{"s", 4096, 0, 0}, 1,
                     std::vector<int>(253, null.get()));
    expect_cut_off(socket);
  }
}

TEST_F(Hostile, OnlySealedMemfdsOfTheSizeSaidAreTaken) {
  const auto socket = join_raw(server_, 1, 8);
  const auto refused = [&](int descriptor, std::uint64_t bytes, const char* what) {
    const auto reply = deposit(socket, {"", bytes, 0, 0}, {descriptor});
    EXPECT_TRUE(is(reply, MessageType::failure)) << what;
    EXPECT_EQ(reply.failure.code, ErrorCode::protocol) << what << ": " << reply.failure.what_failed;
  };
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  base::UniqueFd read_end(ends[0]);
  base::UniqueFd write_end(ends[1]);
  refused(read_end.get(), 4096, "pipe");
  base::UniqueFd directory(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  refused(directory.get(), 4096, "directory");
  base::UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  refused(epoll.get(), 4096, "epoll");
  base::UniqueFd process_file(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  refused(process_file.get(), 4096, "file of /proc");
  base::UniqueFd file(::open((test_runtime_dir() + "/file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::ftruncate(file.get(), 4096), 0);
  refused(file.get(), 4096, "plain file");
  base::UniqueFd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), 4096), 0);
  refused(unsealed.get(), 4096, "unsealed memfd");
  ASSERT_EQ(::fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SEAL), 0);
  refused(unsealed.get(), 4096, "memfd that can shrink");
  const auto sealed = base::create_sealed_memfd("test", 4096);
  refused(sealed.get(), 8192, "smaller than said");
  refused(sealed.get(), 0, "larger than said");
  EXPECT_TRUE(is(deposit(socket, {"", 4096, 0, 0}, {sealed.get()}), MessageType::segment));
  ::unlink((test_runtime_dir() + "/file").c_str());
}

TEST_F(Hostile, AMemberMayNotReleaseWhatIsNotItsOwn) {
  const auto id = member_->create("mine", 4096, Lifetime::referenced).id;
  const auto socket = join_raw(server_, 1, 8);
  send_message_raw(socket.get(), core::ReleaseSegment{id}, 1);
  EXPECT_EQ(receive_raw(socket.get()).failure.code, ErrorCode::not_found);
  EXPECT_EQ(member_->open("mine").id, id);
  member_->release(id);
  member_->release(id);
}

TEST_F(Hostile, WhoNeverReadsIsCutOff) {
  const auto socket = join_raw(server_, 1, 8);
  core::FrameWriter frame;
  core::encode(core::Usage{0}, 1, frame);
  // Far more than the socket and the broker's queue hold.
  int sent = 0;
  while (sent < 100'000) {
    if (::send(socket.get(), frame.bytes().data(), frame.bytes().size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0) {
      ++sent;
      continue;
    }
    if (errno != EAGAIN) break;
    wait_for(socket.get(), POLLOUT, base::running_deadline(std::chrono::seconds(1)));
  }
  EXPECT_LT(sent, 100'000) << "it was never cut off";
}

TEST_F(Hostile, ConnectAndGo) {
  for (int i = 0; i < 2'000; ++i) {
    const auto socket = server_.connect();
    if (i % 2 == 0) send_raw(socket.get(), frame_of_type(static_cast<std::uint16_t>(MessageType::hello)));
  }
}

TEST(SilentClients, DoNotDelayAGoodOne) {
  ServerOptions options;
  options.first_frame_within = 1500ms;
  ThreadedServer server(std::move(options));
  std::vector<base::UniqueFd> silent;
  for (int i = 0; i < 64; ++i) silent.push_back(server.connect());
  const auto start = std::chrono::steady_clock::now();
  const auto member = server.join(0, 1);
  member->put("k", "v");
  const auto took = std::chrono::steady_clock::now() - start;
  // Idle machines need a millisecond; what must not happen is waiting for their deadline.
  EXPECT_LT(took, 1000ms);
  // All of them are gone after their deadline.
  EXPECT_TRUE(eventually([&] { return server.statistics().connections.load() == 1; }, 5s));
  for (const auto& socket : silent) EXPECT_TRUE(receive_raw(socket.get()).closed);
}

TEST(SilentClients, TheOldestMakesRoom) {
  ServerOptions options;
  options.max_half_open = 8;
  options.first_frame_within = 60s;
  ThreadedServer server(std::move(options));
  std::vector<base::UniqueFd> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(server.connect());
  EXPECT_EQ(server.join(0, 1)->rank(), 0);
  EXPECT_LE(server.statistics().connections.load(), 9U);
  EXPECT_TRUE(receive_raw(silent.front().get()).closed);
}

TEST(Descriptors, WhenTheyRunOutRequestsFailAndTheRestGoesOn) {
  ServerOptions options;
  options.descriptor_limit = static_cast<int>(descriptors_of(::getpid()).size()) + 30;
  ThreadedServer server(std::move(options));
  const auto member = server.join(0, 64);
  std::vector<SegmentId> ids;
  bool refused = false;
  while (!refused && ids.size() < 100) {
    try {
      ids.push_back(member->create("", 4096, Lifetime::referenced).id);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
      EXPECT_THAT(error.what(), ::testing::HasSubstr("descriptors in use"));
      refused = true;
    }
  }
  EXPECT_TRUE(refused);
  EXPECT_GE(ids.size(), 8U);
  // Others may still come in ...
  const auto second = server.join(1, 64);
  second->put("k", "v");
  // ... until there is no room for them either.
  std::vector<std::shared_ptr<Client>> members;
  refused = false;
  for (int rank = 2; rank < 40 && !refused; ++rank) {
    try {
      members.push_back(server.join(rank, 64));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
      refused = true;
    }
  }
  EXPECT_TRUE(refused);
  // What is given back can be used again.
  members.clear();
  for (const auto id : ids) member->release(id);
  EXPECT_NO_THROW(member->create("", 4096, Lifetime::referenced));
}

TEST(Limits, BytesAreChargedToWhoDepositsThem) {
  ServerOptions options;
  options.limits = {.member_bytes = 1 << 20, .job_bytes = 3 << 19};
  ThreadedServer server(std::move(options));
  const auto one = server.join(0, 2);
  const auto two = server.join(1, 2);
  const auto id = one->create("a", 1 << 20, Lifetime::referenced).id;
  EXPECT_ERROR(one->create("b", 4096, Lifetime::referenced), ErrorCode::out_of_memory,
               "4096 bytes asked, 1048576 of the member's 1048576 are in use");
  two->open("a");  // sharing costs nothing
  two->create("c", 1 << 19, Lifetime::referenced);
  EXPECT_ERROR(two->create("d", 4096, Lifetime::referenced), ErrorCode::out_of_memory, "of the job's");
  one->release(id);
  two->release(id);
  EXPECT_NO_THROW(one->create("b", 4096, Lifetime::referenced));
}

TEST(Identity, TokensAreParsedStrictly) {
  EXPECT_TRUE(parse_token(std::string(64, 'a')));
  EXPECT_FALSE(parse_token(std::string(63, 'a')));
  EXPECT_FALSE(parse_token(std::string(65, 'a')));
  EXPECT_FALSE(parse_token(std::string(63, 'a') + "g"));
  EXPECT_FALSE(parse_token("0x" + std::string(62, 'a')));
  EXPECT_FALSE(parse_token(std::string(62, 'a') + "-1"));
  const auto one = *parse_token(std::string(64, 'a'));
  for (std::size_t byte = 0; byte < one.size(); ++byte) {
    auto other = one;
    other[byte] ^= 0x80;
    EXPECT_FALSE(equal_tokens(one, other));
  }
  EXPECT_TRUE(equal_tokens(one, one));
}

}  // namespace
}  // namespace tugline::broker::testing

// SPDX-License-Identifier: Apache-2.0
// The frame codec: what is written is read back, and nothing else is taken for a frame.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/messages.h"

namespace tugline::core {
namespace {

std::vector<std::byte> bytes_of(const FrameWriter& frame) {
  return {frame.bytes().begin(), frame.bytes().end()};
}

class RandomMessages {
 public:
  explicit RandomMessages(std::uint32_t seed) : random_(seed) {}
  template <class T>
  T number() {
    return static_cast<T>(random_());
  }
  std::string text(std::size_t longest) {
    // Ends of the range as often as the middle.
    std::size_t length = random_() % 3 == 0 ? (random_() % 2 == 0 ? 0 : longest) : random_() % (longest + 1);
    std::string out(length, '\0');
    for (auto& c : out) c = static_cast<char>(random_());
    return out;
  }
  std::uint8_t flag() { return static_cast<std::uint8_t>(random_() % 2); }

  Hello hello() {
    Hello m;
    for (auto& byte : m.token) byte = number<std::uint8_t>();
    m.rank = number<std::int32_t>();
    m.size = number<std::int32_t>();
    m.job = text(kMaxJobNameBytes);
    return m;
  }
  Failure failure() {
    const auto code = static_cast<ErrorCode>(random_() % (static_cast<unsigned>(ErrorCode::internal) + 1));
    return {code, number<std::int32_t>(), text(kMaxFailureBytes), text(kMaxFailureBytes)};
  }
  DepositSegment deposit() {
    return {text(kMaxSegmentNameBytes), number<std::uint64_t>(), flag(), flag(),
            static_cast<SegmentKind>(random_() % 3)};
  }

 private:
  std::mt19937_64 random_;
};

template <class Message>
void expect_round_trip(const Message& message, std::uint32_t request) {
  FrameWriter frame;
  ASSERT_TRUE(encode(message, request, frame));
  ASSERT_LE(frame.bytes().size(), kMaxFrameBytes);
  FrameView view;
  ASSERT_EQ(parse_frame(frame.bytes(), view), FrameFault::none);
  EXPECT_EQ(view.type, static_cast<std::uint16_t>(Message::kType));
  EXPECT_EQ(view.request, request);
  Message read;
  ASSERT_TRUE(decode(view, read));
  EXPECT_EQ(read, message);
  // No prefix is a message, and neither is one with something behind it.
  const auto whole = bytes_of(frame);
  for (std::size_t length = 0; length < view.body.size(); ++length) {
    FrameView cut = view;
    cut.body = view.body.first(length);
    EXPECT_FALSE(decode(cut, read)) << "body cut to " << length;
  }
  std::vector<std::byte> longer(view.body.begin(), view.body.end());
  longer.push_back(std::byte{0});
  FrameView extended = view;
  extended.body = longer;
  EXPECT_FALSE(decode(extended, read));
}

TEST(Frame, EveryMessageIsReadBackAsItWasWritten) {
  RandomMessages random(20240501);
  for (int round = 0; round < 200; ++round) {
    const auto request = random.number<std::uint32_t>();
    expect_round_trip(random.hello(), request);
    expect_round_trip(Welcome{random.number<std::uint32_t>(), random.number<std::uint32_t>(),
                              random.number<std::uint64_t>(), random.text(kMaxJobNameBytes)},
                      request);
    expect_round_trip(random.deposit(), request);
    expect_round_trip(OpenSegment{random.text(kMaxSegmentNameBytes)}, request);
    expect_round_trip(ImportSegment{random.number<std::uint64_t>()}, request);
    expect_round_trip(
        SegmentReply{random.number<std::uint64_t>(), random.number<std::uint64_t>(), random.flag()}, request);
    expect_round_trip(ReleaseSegment{random.number<std::uint64_t>()}, request);
    expect_round_trip(KeepSegment{random.number<std::uint64_t>()}, request);
    expect_round_trip(RemoveSegment{random.text(kMaxSegmentNameBytes)}, request);
    expect_round_trip(GetValue{random.text(kMaxKeyBytes), random.number<std::uint32_t>()}, request);
    expect_round_trip(Usage{random.number<std::uint32_t>()}, request);
    AttachLauncher attach;
    for (auto& byte : attach.token) byte = random.number<std::uint8_t>();
    attach.job = random.text(kMaxJobNameBytes);
    expect_round_trip(attach, request);
    expect_round_trip(RankEnded{random.number<std::int32_t>(), random.number<std::uint8_t>(),
                                random.number<std::uint8_t>()},
                      request);
    expect_round_trip(RankStarts{random.number<std::int32_t>()}, request);
    expect_round_trip(AttachObserver{attach.token, attach.job}, request);
    UsageReport report;
    for (auto* bytes :
         {&report.scratch_bytes, &report.buffer_bytes, &report.named_bytes, &report.imported_bytes,
          &report.member_segments, &report.member_references, &report.member_limit_bytes, &report.job_bytes,
          &report.job_segments, &report.job_limit_bytes})
      *bytes = random.number<std::uint64_t>();
    for (auto* number : {&report.broker_pid, &report.broker_descriptors, &report.broker_descriptor_limit})
      *number = random.number<std::uint32_t>();
    expect_round_trip(report, request);
    expect_round_trip(Done{}, request);
    expect_round_trip(Leave{}, request);
  }
  // The long ones.
  for (int round = 0; round < 10; ++round) {
    const auto request = random.number<std::uint32_t>();
    expect_round_trip(random.failure(), request);
    expect_round_trip(PutValue{random.text(kMaxKeyBytes), random.text(kMaxValueBytes)}, request);
    expect_round_trip(Value{random.text(kMaxValueBytes)}, request);
  }
}

TEST(Frame, TheLongestMessagesFit) {
  FrameWriter frame;
  EXPECT_TRUE(encode(PutValue{std::string(kMaxKeyBytes, 'k'), std::string(kMaxValueBytes, 'v')}, 1, frame));
  EXPECT_TRUE(encode(
      Failure{ErrorCode::internal, 0, std::string(kMaxFailureBytes, 'a'), std::string(kMaxFailureBytes, 'b')},
      1, frame));
}

TEST(Frame, WhatIsTooLongIsNotWritten) {
  FrameWriter frame;
  EXPECT_FALSE(encode(PutValue{std::string(kMaxKeyBytes + 1, 'k'), {}}, 1, frame));
  EXPECT_FALSE(encode(Value{std::string(kMaxValueBytes + 1, 'v')}, 1, frame));
  EXPECT_FALSE(encode(OpenSegment{std::string(70'000, 'n')}, 1, frame));
  EXPECT_FALSE(encode(DepositSegment{"n", 1, 2, 0}, 1, frame));
  // And the writer is as good as new.
  EXPECT_TRUE(encode(Done{}, 1, frame));
}

TEST(Frame, NumbersAreLittleEndianOnEveryMachine) {
  FrameWriter frame;
  ASSERT_TRUE(encode(ImportSegment{0x1122334455667788}, 0x01020304, frame));
  const std::vector<int> expected = {
      'T', 'U', 'G', 'L', kFrameVersion, 0,    7,    0,    4,    3,    2,    1,
      8,   0,   0,   0,   0x88,          0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11};
  std::vector<int> bytes;
  for (const auto byte : frame.bytes()) bytes.push_back(std::to_integer<int>(byte));
  EXPECT_EQ(bytes, expected);
}

TEST(Frame, DamagedHeadersAreNamed) {
  FrameWriter frame;
  ASSERT_TRUE(encode(ImportSegment{1}, 9, frame));
  const auto good = bytes_of(frame);
  FrameView view;
  for (std::size_t length = 0; length < kFrameHeaderBytes; ++length)
    EXPECT_EQ(parse_frame({good.data(), length}, view), FrameFault::too_short);
  auto bad = good;
  bad[0] ^= std::byte{1};
  EXPECT_EQ(parse_frame(bad, view), FrameFault::magic);
  bad = good;
  bad[4] = std::byte{kFrameVersion + 1};
  EXPECT_EQ(parse_frame(bad, view), FrameFault::version);
  EXPECT_EQ(view.version, kFrameVersion + 1);
  EXPECT_EQ(view.request, 9U);
  for (const int length : {0, 7, 9, 255}) {
    bad = good;
    bad[12] = static_cast<std::byte>(length);
    EXPECT_EQ(parse_frame(bad, view), FrameFault::body_length);
  }
  bad.assign(kMaxFrameBytes + 1, std::byte{0});
  EXPECT_EQ(parse_frame(bad, view), FrameFault::too_long);
}

TEST(Frame, TextsThatClaimTooMuchAreRefused) {
  for (const std::uint16_t claimed : {1, 255, 256, 4096, 65535}) {
    FrameWriter frame;
    frame.begin(static_cast<std::uint16_t>(MessageType::open_segment), 1);
    frame.number(claimed);  // and no byte behind it
    ASSERT_TRUE(frame.finish());
    FrameView view;
    ASSERT_EQ(parse_frame(frame.bytes(), view), FrameFault::none);
    OpenSegment message{"untouched"};
    EXPECT_FALSE(decode(view, message));
    EXPECT_EQ(message.name, "untouched");
  }
}

TEST(Frame, FlagsAndCodesOutOfRangeAreRefused) {
  FrameWriter frame;
  frame.begin(static_cast<std::uint16_t>(MessageType::segment), 1);
  frame.number(std::uint64_t{1});
  frame.number(std::uint64_t{4096});
  frame.number(std::uint8_t{2});
  ASSERT_TRUE(frame.finish());
  FrameView view;
  ASSERT_EQ(parse_frame(frame.bytes(), view), FrameFault::none);
  SegmentReply reply;
  EXPECT_FALSE(decode(view, reply));
  frame.begin(static_cast<std::uint16_t>(MessageType::failure), 1);
  frame.number(static_cast<std::uint8_t>(static_cast<int>(ErrorCode::internal) + 1));
  frame.number(std::int32_t{0});
  frame.text("", 10);
  frame.text("", 10);
  ASSERT_TRUE(frame.finish());
  ASSERT_EQ(parse_frame(frame.bytes(), view), FrameFault::none);
  Failure failure;
  EXPECT_FALSE(decode(view, failure));
}

// Each buffer is exactly as long as the message, so that a sanitizer sees a read past it.
TEST(Frame, NoiseIsNeverReadPastItsEnd) {
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> noise(random() % 64);
    for (auto& byte : noise) byte = static_cast<std::byte>(random());
    FrameView view;
    view.type = static_cast<std::uint16_t>(random() % 20);
    view.body = noise;
    Hello hello;
    Failure failure;
    DepositSegment deposit;
    PutValue put;
    GetValue get;
    const bool any = decode(view, hello) || decode(view, failure) || decode(view, deposit) ||
                     decode(view, put) || decode(view, get);
    // What is accepted says the same again.
    if (any && view.type == static_cast<std::uint16_t>(MessageType::put_value)) {
      FrameWriter frame;
      ASSERT_TRUE(encode(put, 1, frame));
      EXPECT_TRUE(std::ranges::equal(frame.bytes().subspan(kFrameHeaderBytes), view.body));
    }
    parse_frame(noise, view);
  }
}

}  // namespace
}  // namespace tugline::core

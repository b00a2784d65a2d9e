// SPDX-License-Identifier: Apache-2.0
// Named buffers within one process: members are threads' clients of one broker.
#include "memory/named_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <span>

#include "../broker/support.h"
#include "core/control.h"
#include "tugline/error.h"

namespace tugline::memory {
namespace {

using broker::testing::Child;
using broker::testing::ThreadedServer;
using testing::HasSubstr;

constexpr std::size_t kCount = 3000;
using Floats = NamedBuffer<float>;

class NamedMemoryTest : public testing::Test {
 protected:
  static Floats open(const std::shared_ptr<broker::Client>& client, int copies = 2,
                     std::size_t count = kCount) {
    return {open_named(client, "weights", count * sizeof(float), {.copies = copies}), count};
  }
  static void write(Floats& buffer, float value) {
    for (auto& element : buffer.next()) element = value;
  }
  static bool all_are(std::span<const float> elements, float value) {
    return std::all_of(elements.begin(), elements.end(), [&](float element) { return element == value; });
  }
  /// Runs `call`, which must throw, and gives the error.
  template <class Call>
  static Error error_of(Call call) {
    try {
      call();
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "nothing was thrown";
    return Error(ErrorCode::ok, "", "");
  }

  ThreadedServer server_;
  std::shared_ptr<broker::Client> a_ = server_.join(0, 2);
  std::shared_ptr<broker::Client> b_ = server_.join(1, 2);
};

TEST_F(NamedMemoryTest, AFreshOneIsVersionZeroAndZeroed) {
  for (int copies : {1, 2}) {
    const NamedBuffer<double> buffer(
        open_named(a_, "fresh" + std::to_string(copies), 8 * kCount, {.copies = copies}), kCount);
    EXPECT_EQ(buffer.version(), 0u);
    EXPECT_FALSE(buffer.torn());
    EXPECT_EQ(buffer.current().size(), kCount);
    for (auto element : buffer.current()) ASSERT_EQ(element, 0);
  }
}

TEST_F(NamedMemoryTest, ElementsLieOnPageBoundaries) {
  auto buffer = open(a_);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.current().data()) % 4096, 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.next().data()) % 4096, 0u);
}

TEST_F(NamedMemoryTest, WhoSeesTheVersionSeesTheElements) {
  auto writer = open(a_);
  const auto reader = open(b_);
  for (std::uint64_t version : {1u, 2u, 7u}) {
    write(writer, static_cast<float>(version));
    EXPECT_LT(reader.version(), version) << "not before it is published";
    writer.publish(version);
    EXPECT_EQ(reader.version(), version);
    EXPECT_TRUE(all_are(reader.current(), static_cast<float>(version)));
    EXPECT_TRUE(all_are(writer.current(), static_cast<float>(version)));
  }
}

TEST_F(NamedMemoryTest, WithTwoCopiesTheCurrentOneStaysWholeWhileTheNextIsWritten) {
  auto writer = open(a_);
  const auto reader = open(b_);
  write(writer, 1);
  writer.publish(1);
  const auto held = reader.current();
  write(writer, 2);
  EXPECT_TRUE(all_are(held, 1));
  writer.publish(2);
  EXPECT_TRUE(all_are(held, 1)) << "and also until the one after it is begun";
  EXPECT_TRUE(all_are(writer.next(), 1)) << "which is written over the older one";
}

TEST_F(NamedMemoryTest, OneCopyIsWrittenInPlace) {
  auto buffer = open(a_, 1);
  write(buffer, 1);
  buffer.publish(1);
  EXPECT_EQ(static_cast<const float*>(buffer.next().data()), buffer.current().data());
  EXPECT_FALSE(buffer.torn()) << "its writer lives";
  EXPECT_FALSE(open(b_, 1).torn());
}

TEST_F(NamedMemoryTest, VersionsMustGrow) {
  auto buffer = open(a_);
  buffer.next();
  buffer.publish(5);
  buffer.next();
  for (std::uint64_t version : {0u, 4u, 5u}) {
    const auto error = error_of([&] { buffer.publish(version); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(),
                HasSubstr("version 5 and cannot be published as version " + std::to_string(version)));
  }
  EXPECT_EQ(error_of([&] { buffer.publish(std::uint64_t{1} << 63); }).code(), ErrorCode::invalid_argument);
  buffer.publish(6);
  EXPECT_EQ(buffer.version(), 6u);
}

TEST_F(NamedMemoryTest, PublishingNeedsANextOfOnesOwn) {
  auto buffer = open(a_);
  EXPECT_EQ(error_of([&] { buffer.publish(1); }).code(), ErrorCode::invalid_usage);
  buffer.next();
  buffer.publish(1);
  EXPECT_EQ(error_of([&] { buffer.publish(2); }).code(), ErrorCode::invalid_usage);
  auto other = open(b_);
  EXPECT_EQ(error_of([&] { other.publish(2); }).code(), ErrorCode::invalid_usage);
  EXPECT_EQ(buffer.version(), 1u);
}

TEST_F(NamedMemoryTest, OneLivingWriterAtATime) {
  auto writer = open(a_);
  auto other = open(b_);
  writer.next();
  const auto error = error_of([&] { other.next(); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_usage);
  EXPECT_THAT(error.what(), HasSubstr("\"weights\" is written by rank 0 (member"));
  EXPECT_THAT(error.what(), HasSubstr("rank 1 (member"));
  writer.publish(1);
  EXPECT_EQ(error_of([&] { other.next(); }).code(), ErrorCode::invalid_usage) << "between versions too";
}

TEST_F(NamedMemoryTest, AWriterThatLeftIsSucceeded) {
  auto writer = open(a_);
  write(writer, 1);
  writer.publish(1);
  write(writer, 2);  // never published
  a_->leave();
  auto successor = open(b_);
  EXPECT_EQ(successor.version(), 1u);
  EXPECT_TRUE(all_are(successor.current(), 1));
  write(successor, 3);
  successor.publish(2);
  EXPECT_TRUE(all_are(successor.current(), 3));
  EXPECT_EQ(error_of([&] { writer.next(); }).code(), ErrorCode::invalid_usage);
  EXPECT_EQ(error_of([&] { writer.publish(9); }).code(), ErrorCode::invalid_usage);
}

TEST_F(NamedMemoryTest, AMemberThatWasRemovedCannotWrite) {
  auto writer = open(a_);
  writer.next();
  ASSERT_TRUE(core::mark_dead(a_->control().members[a_->member()], core::LossCause::removed, 1));
  EXPECT_EQ(error_of([&] { writer.publish(1); }).code(), ErrorCode::stale_epoch);
  EXPECT_EQ(error_of([&] { writer.next(); }).code(), ErrorCode::stale_epoch);
}

TEST_F(NamedMemoryTest, OneCopyOfAWriterThatLeftInBetweenIsTornUntilItIsPublishedAnew) {
  auto writer = open(a_, 1);
  auto finder = open(b_, 1);
  write(writer, 1);
  writer.publish(1);
  write(writer, 2);
  EXPECT_FALSE(finder.torn());
  a_->leave();
  EXPECT_TRUE(finder.torn());
  const auto error = error_of([&] { (void)finder.current(); });
  EXPECT_EQ(error.code(), ErrorCode::torn);
  EXPECT_THAT(error.what(), HasSubstr("after version 1"));
  write(finder, 4);
  EXPECT_TRUE(finder.torn()) << "still half of each";
  finder.publish(2);
  EXPECT_FALSE(finder.torn());
  EXPECT_TRUE(all_are(finder.current(), 4));
}

TEST_F(NamedMemoryTest, AnotherShapeIsRefusedByBothShapesNames) {
  open(a_, 2, 1024);
  const auto by_copies = error_of([&] { open(b_, 1, 1024); });
  EXPECT_EQ(by_copies.code(), ErrorCode::mismatch);
  EXPECT_THAT(by_copies.what(), HasSubstr("has 2 copies of 4096 bytes, 1 of 4096 bytes are asked"));
  const auto by_bytes = error_of([&] { open(b_, 2, 5000); });
  EXPECT_EQ(by_bytes.code(), ErrorCode::mismatch);
  EXPECT_THAT(by_bytes.what(), HasSubstr("has 2 copies of 4096 bytes, 2 of 20000 bytes are asked"));
  // The same number of bytes in all: the broker alone could not tell.
  const auto by_both = error_of([&] { open(b_, 1, 2048); });
  EXPECT_EQ(by_both.code(), ErrorCode::mismatch);
  EXPECT_THAT(by_both.what(), HasSubstr("has 2 copies of 4096 bytes, 1 of 8192 bytes are asked"));
  const auto by_little = error_of([&] { open(b_, 2, 1023); });
  EXPECT_EQ(by_little.code(), ErrorCode::mismatch);
  EXPECT_EQ(open(b_, 2, 1024).size(), 1024u);
}

TEST_F(NamedMemoryTest, WrongArgumentsAreNamed) {
  for (int copies : {0, 3, -1}) {
    const auto error = error_of([&] { open(a_, copies); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(copies) + " copies"));
  }
  EXPECT_EQ(error_of([&] { open(a_, 2, 0); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { open_named(a_, "", 8, {}); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { open_named(a_, "large", std::size_t{1} << 45, {}); }).code(),
            ErrorCode::out_of_memory);
}

TEST_F(NamedMemoryTest, ANameIsFreeAgainWhenThereIsNoRoomForItsMemory) {
  // The first is more than the machine has, the second more than an address space.
  for (const std::size_t bytes : {std::size_t{1} << 44, (std::size_t{1} << 47) - 1}) {
    EXPECT_EQ(error_of([&] { open_named(a_, "weights", bytes, {.copies = 2}); }).code(),
              ErrorCode::out_of_memory);
    EXPECT_EQ(a_->usage(a_->member()).job_segments, 0u);
    EXPECT_EQ(error_of([&] { a_->open("named/weights"); }).code(), ErrorCode::not_found);
  }
  // Of another size, and it stays.
  open(b_);
  EXPECT_EQ(open(a_).size(), kCount);
}

TEST_F(NamedMemoryTest, AForeignSegmentOfThatNameIsRefused) {
  const auto segment = a_->create("named/weights", 4096 + 2 * 12288, broker::Lifetime::persistent);
  base::Mapping mapping(segment.descriptor.get(), segment.bytes, base::Access::read_write);
  *static_cast<std::uint64_t*>(mapping.data()) = 0x1234567890abcdef;
  const auto error = error_of([&] { open(a_); });
  EXPECT_EQ(error.code(), ErrorCode::protocol);
}

TEST_F(NamedMemoryTest, AReadersMistakeCannotChangeIt) {
  auto writer = open(a_);
  write(writer, 1);
  writer.publish(1);
  const auto reader = open(b_);
  const auto elements = reader.current();
  Child stray([&]() -> int {
    ::signal(SIGSEGV, SIG_DFL);
    const_cast<float&>(elements[0]) = 9;
    return 0;
  });
  EXPECT_EQ(stray.wait(), 128 + SIGSEGV);
  EXPECT_TRUE(all_are(reader.current(), 1));
}

}  // namespace
}  // namespace tugline::memory

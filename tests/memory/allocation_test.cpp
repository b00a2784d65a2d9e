// SPDX-License-Identifier: Apache-2.0
#include "memory/allocation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../broker/support.h"
#include "tugline/error.h"

namespace tugline::memory {
namespace {

using broker::testing::count_matching;
using broker::testing::descriptors_of;
using broker::testing::ThreadedServer;

TEST(AllocationTest, IsZeroedSharedAndKeepsNoDescriptor) {
  ThreadedServer server;
  auto client = server.join();
  auto other = client->create("", 1, broker::Lifetime::referenced);
  const auto before = count_matching(descriptors_of(::getpid()), "tugline-segment");
  auto allocation = allocate(client, 100'000);
  // The broker is a thread here: the one descriptor more is its own.
  EXPECT_EQ(count_matching(descriptors_of(::getpid()), "tugline-segment"), before + 1);
  EXPECT_EQ(allocation->bytes(), 100'000u);
  const auto* bytes = static_cast<const unsigned char*>(allocation->data());
  for (std::size_t i = 0; i < allocation->bytes(); ++i) ASSERT_EQ(bytes[i], 0) << i;

  // The id is the next one: what another member imports is the same memory.
  static_cast<unsigned char*>(allocation->data())[99'999] = 7;
  const auto segment = client->import(other.id + 1);
  const base::Mapping seen(segment.descriptor.get(), segment.bytes, base::Access::read_only);
  EXPECT_EQ(static_cast<const unsigned char*>(seen.data())[99'999], 7);
}

TEST(AllocationTest, GivesItsReferenceBack) {
  ThreadedServer server;
  auto client = server.join();
  const auto other = client->create("", 1, broker::Lifetime::referenced);
  allocate(client, 4096).reset();
  try {
    (void)client->import(other.id + 1);
    FAIL() << "the segment is still there";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
  }
}

TEST(AllocationTest, OutlivesTheClientsLastOtherOwner) {
  ThreadedServer server;
  auto client = server.join();
  auto allocation = allocate(client, 4096);
  client.reset();
  static_cast<char*>(allocation->data())[0] = 1;
}

TEST(AllocationTest, RefusesNothingAndTooMuch) {
  ThreadedServer server;
  auto client = server.join();
  try {
    allocate(client, 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  }
  const auto other = client->create("", 1, broker::Lifetime::referenced);
  try {
    allocate(client, std::size_t{1} << 45);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
    EXPECT_THAT(error.what(), testing::HasSubstr("35184372088832 bytes"));
  }
  EXPECT_THROW((void)client->import(other.id + 1), Error) << "the failed one was not released";
}

TEST(AllocationTest, CountsThatDoNotFitAreRefusedBeforeTheyWrap) {
  EXPECT_EQ(bytes_of(3, 8), 24u);
  for (const auto count : {static_cast<std::size_t>(-1), std::size_t{1} << 61, (std::size_t{1} << 61) + 1}) {
    try {
      (void)bytes_of(count, 8);
      FAIL() << count;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), testing::HasSubstr(std::to_string(count)));
    }
  }
}

}  // namespace
}  // namespace tugline::memory

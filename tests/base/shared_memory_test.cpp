// SPDX-License-Identifier: Apache-2.0
#include "base/shared_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <vector>

#include "tugline/error.h"

namespace {

using tugline::Error;
using tugline::ErrorCode;
using tugline::base::Access;
using tugline::base::check_sealed;
using tugline::base::create_sealed_memfd;
using tugline::base::Mapping;
using tugline::base::populate;

constexpr std::uint64_t kBytes = 1 << 20;

template <class Function>
ErrorCode code_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::ok;
}

TEST(SharedMemory, TwoMappingsShareZeroedBytes) {
  const auto fd = create_sealed_memfd("test", kBytes);
  const Mapping writer(fd.get(), kBytes, Access::read_write);
  const Mapping reader(fd.get(), kBytes, Access::read_only);
  const auto* seen = static_cast<const unsigned char*>(reader.data());
  EXPECT_EQ(seen[kBytes - 1], 0);
  std::memset(writer.data(), 7, kBytes);
  EXPECT_EQ(seen[0], 7);
  EXPECT_EQ(seen[kBytes - 1], 7);
}

TEST(SharedMemory, SizeIsSealed) {
  const auto fd = create_sealed_memfd("test", kBytes);
  EXPECT_EQ(ftruncate(fd.get(), kBytes / 2), -1);
  EXPECT_EQ(ftruncate(fd.get(), kBytes * 2), -1);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_TRUE(fcntl(fd.get(), F_GETFD) & FD_CLOEXEC);
  EXPECT_NO_THROW(check_sealed(fd.get(), kBytes));
}

TEST(SharedMemory, RefusesWhatIsNotSealedOrOfAnotherSize) {
  const auto fd = create_sealed_memfd("test", kBytes);
  EXPECT_EQ(code_of([&] { check_sealed(fd.get(), kBytes + 1); }), ErrorCode::protocol);
  const tugline::base::UniqueFd open_memfd(memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(open_memfd.get(), kBytes), 0);
  EXPECT_EQ(code_of([&] { check_sealed(open_memfd.get(), kBytes); }), ErrorCode::protocol);
  ASSERT_EQ(fcntl(open_memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_EQ(code_of([&] { check_sealed(open_memfd.get(), kBytes); }), ErrorCode::protocol);
  const tugline::base::UniqueFd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(code_of([&] { check_sealed(file.get(), kBytes); }), ErrorCode::protocol);
  EXPECT_EQ(code_of([&] { check_sealed(-1, kBytes); }), ErrorCode::protocol);
}

TEST(SharedMemory, RefusesImpossibleSizes) {
  EXPECT_EQ(code_of([] { (void)create_sealed_memfd("none", 0); }), ErrorCode::invalid_argument);
  EXPECT_NE(code_of([] { (void)create_sealed_memfd("huge", UINT64_MAX); }), ErrorCode::ok);
}

TEST(SharedMemory, MovesKeepTheAddress) {
  const auto fd = create_sealed_memfd("test", kBytes);
  Mapping first(fd.get(), kBytes, Access::read_write);
  void* address = first.data();
  Mapping second(std::move(first));
  EXPECT_EQ(second.data(), address);
  EXPECT_FALSE(first);
  Mapping third;
  third = std::move(second);
  EXPECT_EQ(third.data(), address);
  EXPECT_EQ(third.bytes(), kBytes);
}

std::uint64_t resident_pages(const Mapping& mapping) {
  std::vector<unsigned char> flags(mapping.bytes() / 4096);
  EXPECT_EQ(mincore(mapping.data(), mapping.bytes(), flags.data()), 0);
  std::uint64_t count = 0;
  for (const auto flag : flags) count += flag & 1;
  return count;
}

TEST(Populate, MakesPagesResidentAndKeepsContents) {
  const auto fd = create_sealed_memfd("test", kBytes);
  const Mapping mapping(fd.get(), kBytes, Access::read_write);
  auto* bytes = static_cast<unsigned char*>(mapping.data());
  bytes[5000] = 42;
  EXPECT_LT(resident_pages(mapping), kBytes / 4096);
  populate(bytes + 100, kBytes - 200);
  EXPECT_EQ(resident_pages(mapping), kBytes / 4096);
  EXPECT_EQ(bytes[5000], 42);
  EXPECT_EQ(bytes[0], 0);
  populate(bytes, 0);
}

TEST(Populate, MoreThanTheMachineHasIsOutOfMemory) {
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 46;
  void* address =
      mmap(nullptr, kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) GTEST_SKIP() << "this machine gives no 64 TiB of address space";
  try {
    populate(address, kHuge);
    ADD_FAILURE() << "64 TiB were populated";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_THAT(error.what(), testing::HasSubstr("70368744177664 bytes"));
    EXPECT_THAT(error.what(), testing::HasSubstr("are free"));
  }
  munmap(address, kHuge);
}

}  // namespace

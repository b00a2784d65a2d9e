// SPDX-License-Identifier: Apache-2.0
// Paths, directories, token files: what is another's, readable by others, or too long is refused.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "broker/endpoint.h"
#include "broker/place.h"
#include "expect_error.h"
#include "support.h"

namespace tugline::broker::testing {
namespace {

namespace fs = std::filesystem;

Place fresh_place() {
  return place_of({}, fresh_job());
}

TEST(Place, IsDerivedFromTheJob) {
  const auto place = place_of({}, "train.1");
  EXPECT_EQ(place.directory, test_runtime_dir() + "/train.1");
  EXPECT_EQ(place.socket_path, test_runtime_dir() + "/train.1/broker.sock");
  EXPECT_TRUE(place.derived_from_job);
  const auto named = place_of("/run/x/y.sock", "train.1");
  EXPECT_EQ(named.directory, "/run/x");
  EXPECT_EQ(named.socket_name, "y.sock");
  EXPECT_FALSE(named.derived_from_job);
}

TEST(Place, JobNamesAreNoPaths) {
  for (const char* name : {"", ".", "..", ".hidden", "a/b", "a b", "a\n", "\xc3\xa4"})
    EXPECT_ERROR(place_of({}, name), ErrorCode::invalid_argument, "job name");
  EXPECT_ERROR(place_of({}, std::string(65, 'a')), ErrorCode::invalid_argument, "65 characters");
  EXPECT_NO_THROW(place_of({}, std::string(64, 'a')));
}

TEST(Place, TooLongPathsNameLengthAndLimit) {
  EXPECT_ERROR(place_of("/tmp/" + std::string(81, 's'), {}), ErrorCode::invalid_argument,
               "its last part has 81 characters, the limit is 80");
  EXPECT_ERROR(place_of("/" + std::string(5000, 'd') + "/s", {}), ErrorCode::invalid_argument,
               "the limit is 4095");
  EXPECT_ERROR(place_of("/tmp/", {}), ErrorCode::invalid_argument, "does not end in a file name");
}

TEST(Place, ARemovedWorkingDirectoryIsNamed) {
  const auto before = fs::current_path();
  const auto gone = fs::path(test_runtime_dir()) / "gone";
  fs::create_directories(gone);
  fs::current_path(gone);
  fs::remove(gone);
  EXPECT_ERROR(place_of("job/broker.sock", {}), ErrorCode::not_found,
               "\"job/broker.sock\" is relative to the working directory, which has been removed");
  fs::current_path(before);
}

TEST(Place, DirectoriesLongerThanASocketAddressWork) {
  std::string directory = test_runtime_dir();
  for (int i = 0; i < 5; ++i) directory += "/" + std::string(100, static_cast<char>('a' + i));
  fs::create_directories(directory);
  fs::permissions(directory, fs::perms::owner_all);
  const auto place = place_of(directory + "/" + std::string(80, 's'), {});
  {
    Endpoint endpoint(place, {});
    const auto folder = open_directory(place, Missing::fail);
    int reason = 0;
    EXPECT_TRUE(connect_to(place, folder.get(), reason)) << reason;
  }
  fs::remove_all(test_runtime_dir() + "/" + std::string(100, 'a'));
}

TEST(Place, DirectoriesOfOthersAreRefused) {
  auto place = fresh_place();
  fs::create_directory(place.directory);
  for (const mode_t mode : {0755U, 0770U, 0701U}) {
    ::chmod(place.directory.c_str(), mode);
    EXPECT_ERROR(Endpoint(place, {}), ErrorCode::permission_denied, "others could reach the broker");
  }
  ::chmod(place.directory.c_str(), 0700);
  EXPECT_NO_THROW(Endpoint(place, {}));

  place = fresh_place();
  fs::create_directory_symlink("/tmp", place.directory);
  EXPECT_ERROR(Endpoint(place, {}), ErrorCode::permission_denied, "symbolic link");
  fs::remove(place.directory);
  std::ofstream(place.directory) << "a file";
  EXPECT_ERROR(Endpoint(place, {}), ErrorCode::not_found, "not a directory");
  fs::remove(place.directory);

  if (::geteuid() != 0) GTEST_SKIP() << "only root can make another user's directory";
  fs::create_directory(place.directory);
  ::chmod(place.directory.c_str(), 0700);
  ASSERT_EQ(::chown(place.directory.c_str(), 65534, 65534), 0);
  EXPECT_ERROR(Endpoint(place, {}), ErrorCode::permission_denied, "belongs to user 65534");
  fs::remove(place.directory);
}

TEST(Place, AnUnwritableRuntimeDirectoryIsNamed) {
  EXPECT_ERROR(Endpoint(place_of("/proc/tugline/broker.sock", {}), {}), ErrorCode::not_found,
               "/proc/tugline");
  Child other([] {
    // Root may write everywhere; somebody else may not.
    if (::geteuid() == 0 && ::setuid(65534) != 0) return 3;
    try {
      Endpoint endpoint(place_of("/usr/tugline-test/broker.sock", {}), {});
    } catch (const Error& error) {
      return error.code() == ErrorCode::permission_denied ? 0 : 1;
    }
    return 2;
  });
  EXPECT_EQ(other.wait(), 0);
}

TEST(Place, WhatADeadBrokerLeftIsReplaced) {
  const auto place = fresh_place();
  fs::create_directory(place.directory);
  ::chmod(place.directory.c_str(), 0700);
  // A squatted name, a token of somebody who is gone, half-made files.
  for (const char* name : {"broker.sock", "broker.sock.new", "token", "token.new"})
    std::ofstream(place.directory + "/" + name) << "stale";
  {
    Endpoint endpoint(place, {});
    const auto folder = open_directory(place, Missing::fail);
    EXPECT_EQ(read_token(place, folder.get()), endpoint.token_hex());
    struct stat status {};
    ASSERT_EQ(::stat(place.socket_path.c_str(), &status), 0);
    EXPECT_TRUE(S_ISSOCK(status.st_mode));
    EXPECT_EQ(status.st_mode & 0777, 0600U);
    ASSERT_EQ(::stat((place.directory + "/token").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600U);
    EXPECT_THAT(entries_of(place.directory), ::testing::UnorderedElementsAre("broker.sock", "token"));
  }
  EXPECT_FALSE(fs::exists(place.directory));
}

TEST(Place, FilesOfTheUserStay) {
  const auto place = fresh_place();
  {
    Endpoint endpoint(place, {});
    std::ofstream(place.directory + "/notes") << "mine";
  }
  EXPECT_THAT(entries_of(place.directory), ::testing::ElementsAre("notes"));
  fs::remove_all(place.directory);
}

TEST(Place, TheLockIsHandedOverWithItsDescriptor) {
  const auto place = fresh_place();
  auto held = open_directory(place, Missing::make);
  ASSERT_TRUE(lock_directory(place, held.get()));
  EXPECT_ERROR(Endpoint(place, {}), ErrorCode::already_exists, "another broker");
  Endpoint endpoint(place, {}, std::move(held));
  const auto other = open_directory(place, Missing::fail);
  EXPECT_FALSE(lock_directory(place, other.get()));
}

TEST(Place, ADirectoryRemovedMeanwhileIsNotLocked) {
  const auto place = fresh_place();
  const auto stale = open_directory(place, Missing::make);
  fs::remove(place.directory);
  EXPECT_FALSE(lock_directory(place, stale.get()));
  const auto fresh = open_directory(place, Missing::make);
  EXPECT_TRUE(lock_directory(place, fresh.get()));
  EXPECT_FALSE(lock_directory(place, stale.get()));
  fs::remove(place.directory);
}

TEST(Token, FilesThatOthersCanReadAreRefused) {
  const auto place = fresh_place();
  Endpoint endpoint(place, {});
  const auto folder = open_directory(place, Missing::fail);
  const auto path = place.directory + "/token";
  ::chmod(path.c_str(), 0640);
  EXPECT_ERROR(read_token(place, folder.get()), ErrorCode::permission_denied, "mode 0640");
  ::chmod(path.c_str(), 0600);
  std::ofstream(path) << "not a token";
  EXPECT_ERROR(read_token(place, folder.get()), ErrorCode::protocol, "64 hexadecimal digits");
  fs::remove(path);
  EXPECT_ERROR(read_token(place, folder.get()), ErrorCode::not_found, "token file");
  fs::create_symlink("/etc/passwd", path);
  EXPECT_THROW(read_token(place, folder.get()), Error);
  fs::remove(path);
}

TEST(Token, IsTheOneHandedDown) {
  const std::string token(64, '7');
  Endpoint endpoint(fresh_place(), token);
  EXPECT_EQ(endpoint.token_hex(), token);
  EXPECT_ERROR(Endpoint(fresh_place(), "1234"), ErrorCode::invalid_argument, "4 characters");
}

}  // namespace
}  // namespace tugline::broker::testing

// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "tugline/error.h"

namespace {

using namespace tugline::base;
using testing::HasSubstr;
using tugline::Error;
using tugline::ErrorCode;

class FileTest : public testing::Test {
 protected:
  FileTest() {
    std::string pattern = testing::TempDir() + "tugline-file-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    directory_ = pattern;
  }
  ~FileTest() override { std::filesystem::remove_all(directory_); }

  std::string path(const char* name) const { return (directory_ / name).string(); }
  std::string pipe() const {
    auto made = path("pipe");
    if (::mkfifo(made.c_str(), 0600) != 0) throw std::runtime_error("mkfifo");
    return made;
  }
  static void expect_error(const std::string& path, Pipes pipes, ErrorCode code, const std::string& text) {
    try {
      read_file(path, "the file", pipes);
      ADD_FAILURE() << path << " was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("the file " + path + " " + text));
    }
  }

 private:
  std::filesystem::path directory_;
};

TEST_F(FileTest, WhatIsWrittenIsRead) {
  const std::string text = std::string(200'000, 'x') + std::string("\0\n", 2);
  {
    const auto file = open_to_write(path("a"), O_CREAT | O_TRUNC, 0600);
    ASSERT_TRUE(file);
    EXPECT_EQ(write_all(file.get(), text), 0);
  }
  EXPECT_EQ(read_file(path("a"), "the file", Pipes::refused), text);
  EXPECT_EQ(read_file("/dev/null", "the file", Pipes::refused), "");
}

TEST_F(FileTest, NothingIsReadWithoutAnEnd) {
  for (const auto pipes : {Pipes::refused, Pipes::read}) {
    expect_error("/dev/zero", pipes, ErrorCode::invalid_argument, "is longer than 64 MiB");
    expect_error(path("none"), pipes, ErrorCode::not_found, "cannot be opened");
    expect_error(path("."), pipes, ErrorCode::system, "is a directory");
  }
  std::ofstream(path("long")) << "x";
  std::filesystem::resize_file(path("long"), kLongestFile);
  EXPECT_EQ(read_file(path("long"), "the file", Pipes::refused).size(), kLongestFile);
  std::filesystem::resize_file(path("long"), kLongestFile + 1);
  expect_error(path("long"), Pipes::refused, ErrorCode::invalid_argument, "is longer than 64 MiB");
}

TEST_F(FileTest, PipesAreReadAndWrittenWhereTheirOtherEndIsThere) {
  const auto name = pipe();
  expect_error(name, Pipes::refused, ErrorCode::invalid_argument, "is a pipe");
  expect_error(name, Pipes::read, ErrorCode::invalid_argument, "is a pipe that nobody writes to");
  EXPECT_FALSE(open_to_write(name, O_APPEND, 0600));
  EXPECT_EQ(errno, ENXIO);
  EXPECT_EQ(why_not_written(name, ENXIO), "nobody reads this pipe");

  const UniqueFd reader(::open(name.c_str(), O_RDONLY | O_NONBLOCK));
  auto writer = open_to_write(name, O_APPEND, 0600);
  ASSERT_TRUE(writer);
  EXPECT_EQ(::fcntl(writer.get(), F_GETFL) & O_NONBLOCK, 0) << "it does not wait for a slow reader";
  EXPECT_EQ(write_all(writer.get(), "text"), 0);
  writer.reset();
  EXPECT_EQ(read_file(name, "the file", Pipes::read), "text");
}

}  // namespace

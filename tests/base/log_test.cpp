// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

namespace {

using tugline::base::configure_log;
using tugline::base::LogLevel;
using tugline::base::set_log_callback;

class LogTest : public testing::Test {
 protected:
  void TearDown() override {
    set_log_callback({});
    configure_log(LogLevel::warn, "");
  }
};

TEST_F(LogTest, LevelDecides) {
  std::vector<std::string> lines;
  set_log_callback([&](LogLevel level, std::string_view text) {
    lines.push_back(std::string(name_of(level)) + ":" + std::string(text));
  });
  configure_log(LogLevel::info, "");
  tugline::base::log(LogLevel::info, "{} ranks", 4);
  tugline::base::log(LogLevel::debug, "{}", "not seen");
  tugline::base::log(LogLevel::error, "bad");
  EXPECT_THAT(lines, testing::ElementsAre("info:4 ranks", "error:bad"));
  EXPECT_TRUE(tugline::base::log_enabled(LogLevel::warn));
  EXPECT_FALSE(tugline::base::log_enabled(LogLevel::trace));
}

TEST_F(LogTest, FileLinesCarryHostPidAndLevelAndDoNotMix) {
  const std::string pattern = testing::TempDir() + "tugline-log-%p-%h.txt";
  configure_log(LogLevel::info, pattern);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([thread] {
      for (int line = 0; line < 50; ++line)
        tugline::base::log(LogLevel::info, "thread {} line {}", thread, line);
    });
  for (auto& thread : threads) thread.join();
  configure_log(LogLevel::warn, "");
  char host[256] = {};
  ASSERT_EQ(gethostname(host, sizeof host - 1), 0);
  const std::string name = std::string(host).substr(0, std::string(host).find('.'));
  const auto path = testing::TempDir() + "tugline-log-" + std::to_string(getpid()) + "-" + name + ".txt";
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  int count = 0;
  for (std::string line; std::getline(file, line); ++count)
    EXPECT_THAT(line, testing::AllOf(testing::StartsWith(name + ":" + std::to_string(getpid()) + ":"),
                                     testing::ContainsRegex(" tugline INFO thread [0-3] line [0-9]+$")));
  EXPECT_EQ(count, 200);
  std::remove(path.c_str());
}

TEST_F(LogTest, UnusableFileIsSaidOnStderr) {
  testing::internal::CaptureStderr();
  configure_log(LogLevel::warn, "/nonexistent-directory/log");
  tugline::base::log(LogLevel::warn, "first\nsecond");
  const auto text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, testing::HasSubstr("/nonexistent-directory/log cannot be opened"));
  EXPECT_THAT(text, testing::HasSubstr("WARN first\n    second\n"));
}

TEST_F(LogTest, AFileThatCannotBeWrittenIsSaidOnStderrWithWhatItWouldHold) {
  testing::internal::CaptureStderr();
  configure_log(LogLevel::warn, "/dev/full");
  tugline::base::log(LogLevel::warn, "first");
  tugline::base::log(LogLevel::warn, "second");
  const auto text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, testing::ContainsRegex("ERROR log file /dev/full cannot be written: No space left"));
  EXPECT_THAT(text, testing::HasSubstr("WARN first\n"));
  EXPECT_THAT(text, testing::HasSubstr("WARN second\n"));
  EXPECT_EQ(text.find("cannot be written"), text.rfind("cannot be written")) << "said once";
}

TEST_F(LogTest, ALimitOnFileSizesIsAFileThatCannotBeWritten) {
  const auto path = testing::TempDir() + "tugline-log-limit-" + std::to_string(getpid());
  constexpr rlim_t kLimit = 4096;
  std::ofstream(path) << std::string(kLimit, '.');  // full; what the test catches of stderr is a file too
  const auto log_beyond_limit = [&] {
    configure_log(LogLevel::warn, path);
    const rlimit limit{kLimit, kLimit};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    tugline::base::log(LogLevel::warn, "no room for this");
    _exit(0);
  };
  EXPECT_EXIT(log_beyond_limit(), testing::ExitedWithCode(0), "cannot be written: File too large");
  std::remove(path.c_str());
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// Starts that fail: each says why in three lines, at once, and leaves nothing behind, whoever it was that
// started.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "processes.h"

namespace tugline::process {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kRefused = 77;

/// Mounts a tmpfs with these options there, for children only; exits them where that is not allowed.
std::function<void()> tmpfs_at(const std::string& path, const std::string& options, bool fill = false) {
  return [path, options, fill] {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", path.c_str(), "tmpfs", 0, options.c_str()) != 0)
      ::_exit(kRefused);
    if (!fill) return;
    std::ofstream file(path + "/in_the_way");
    file << std::string(1 << 16, 'x') << std::flush;
  };
}

std::string refusal(const std::function<void()>& prepare) {
  const pid_t child = ::fork();
  if (child == 0) {
    prepare();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "" : "mounts are not allowed here (run as root)";
}

class Start : public ::testing::Test {
 protected:
  std::string command() const { return around_.broker_launch().command.front(); }
  std::string program() const { return around_.rank(0, 1, {}).command.front(); }

  /// The ways to start a broker: by the first rank, by `tugline run`, as a standing one.
  std::vector<Launch> all_starts() const {
    auto rank = around_.rank(0, 1, {"collectives"});
    auto run = around_.broker_launch();
    run.command = {command(), "run", "-n", "2", "--no-prefix", "--", program(), "collectives"};
    return {rank, run, around_.broker_launch()};
  }
  /// Each of these starts fails at once with this code; returns the first lines.
  void expect_failure(const std::vector<Launch>& starts, const std::string& code,
                      const ::testing::Matcher<std::string>& first_line) {
    for (const auto& launch : starts) {
      Process process(launch);
      const auto end = process.wait(5s);  // ten seconds is a deadline that nobody should meet
      EXPECT_EQ(end.exit_code, 1) << end.output << end.error;
      EXPECT_THAT(expect_three_lines(end.error, code), first_line);
      EXPECT_TRUE(around_.files().empty()) << ::testing::PrintToString(around_.files());
    }
    EXPECT_TRUE(around_.nothing_left());
  }
  std::vector<Launch> with(std::vector<Launch> starts, const std::string& name, const std::string& value) {
    for (auto& launch : starts) launch.environment[name] = value;
    return starts;
  }
  std::vector<Launch> within(std::vector<Launch> starts, const std::function<void()>& before_exec) {
    for (auto& launch : starts) launch.before_exec = before_exec;
    return starts;
  }
  /// Those that start a broker of another process.
  std::vector<Launch> spawning() const {
    auto starts = all_starts();
    starts.pop_back();
    return starts;
  }
  Surroundings around_;
};

TEST_F(Start, ABadTokenIsNamedByWhoeverStarts) {
  auto starts = all_starts();
  starts.erase(starts.begin() + 1);  // `run` makes one itself
  expect_failure(with(starts, "TUGLINE_TOKEN", "xyz"), "invalid_argument",
                 HasSubstr("token has 3 characters and is not 64 hexadecimal digits"));
}

TEST_F(Start, AProgramThatIsNoBrokerIsNamedWithWhatItSays) {
  expect_failure(with(spawning(), "TUGLINE_BROKER_BIN", "/nope"), "not_found", HasSubstr("/nope"));
  expect_failure(with(spawning(), "TUGLINE_BROKER_BIN", "/bin/true"), "broker_lost",
                 HasSubstr("true ended before it served"));
  const auto script = (around_.folder() / "script").string();
  std::ofstream(script) << "#!/bin/sh\necho cannot load libsomething >&2\nexit 127\n";
  ::chmod(script.c_str(), 0700);
  expect_failure(with(spawning(), "TUGLINE_BROKER_BIN", script), "broker_lost",
                 AllOf(HasSubstr(script), HasSubstr("cannot load libsomething")));
}

TEST_F(Start, TooFewDescriptorsAreNamedWithTheRemedy) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer opens a pipe to look at memory, and calls what it cannot look at wrong";
#endif
  for (const rlim_t limit : {5, 6, 8, 10, 12}) {
    const auto few = [limit] {
      const rlimit both{limit, limit};
      ::setrlimit(RLIMIT_NOFILE, &both);
    };
    for (auto& launch : within(spawning(), few)) {
      Process process(launch);
      const auto end = process.wait(5s);
      EXPECT_THAT(expect_three_lines(end.error, "out_of_memory"), HasSubstr("descriptor")) << limit;
      EXPECT_THAT(end.error, AllOf(HasSubstr("do: fix_call: "), HasSubstr("ulimit -"))) << limit;
      EXPECT_TRUE(around_.files().empty()) << limit << ::testing::PrintToString(around_.files());
    }
  }
}

TEST_F(Start, AFullFileSystemIsNamed) {
  const auto runtime = around_.runtime().string();
  fs::create_directory(runtime);
  for (const auto& prepare :
       {tmpfs_at(runtime, "size=4k,mode=0700", true), tmpfs_at(runtime, "nr_inodes=1,mode=0700"),
        tmpfs_at(runtime, "nr_inodes=2,mode=0700"), tmpfs_at(runtime, "nr_inodes=3,mode=0700")}) {
    if (const auto why = refusal(prepare); !why.empty()) GTEST_SKIP() << why;
    expect_failure(within(all_starts(), prepare), "system",
                   AllOf(HasSubstr("ENOSPC"), HasSubstr(runtime + ":")));
  }
}

TEST_F(Start, AReadOnlyFileSystemIsNamed) {
  const auto runtime = around_.runtime().string();
  fs::create_directory(runtime);
  const auto prepare = tmpfs_at(runtime, "ro,mode=0700");
  if (const auto why = refusal(prepare); !why.empty()) GTEST_SKIP() << why;
  expect_failure(within(all_starts(), prepare), "permission_denied",
                 AllOf(HasSubstr(runtime + " is"), HasSubstr("read-only")));
}

TEST_F(Start, ARuntimeDirectoryThatCannotBeOneIsNamed) {
  const auto file = (around_.folder() / "file").string();
  std::ofstream(file) << "in the way";
  expect_failure(with(all_starts(), "TUGLINE_RUNTIME_DIR", file), "not_found",
                 HasSubstr(file + " is not a directory"));
  expect_failure(with(all_starts(), "TUGLINE_RUNTIME_DIR", "/proc"), "invalid_argument",
                 HasSubstr(" /proc is"));
}

TEST_F(Start, NoParentsAreMadeOfWhatTheUserNamed) {
  const auto missing = around_.folder() / "nope";
  const auto deep = (missing / "a").string();
  expect_failure(with(all_starts(), "TUGLINE_RUNTIME_DIR", deep), "not_found",
                 AllOf(HasSubstr(deep), HasSubstr(missing.string() + " is not there")));
  auto by_socket = around_.broker_launch();
  by_socket.command = {command(), "broker", "--socket", deep + "/b.sock"};
  expect_failure({by_socket}, "not_found", HasSubstr(missing.string() + " is not there"));
  // Relative paths too; the directory above is this process's.
  const auto folder = around_.folder().string();
  const auto there = [folder] {
    if (::chdir(folder.c_str()) != 0) ::_exit(kRefused);
  };
  expect_failure(within(with(all_starts(), "TUGLINE_RUNTIME_DIR", "nope/a"), there), "not_found",
                 HasSubstr(missing.string() + " is not there"));
  EXPECT_FALSE(fs::exists(missing));
}

TEST_F(Start, WhatWasMadeForAStartThatFailsIsRemoved) {
  ASSERT_FALSE(fs::exists(around_.runtime()));
  expect_failure(with(spawning(), "TUGLINE_BROKER_BIN", "/bin/true"), "broker_lost", HasSubstr("true"));
  EXPECT_FALSE(fs::exists(around_.runtime()));
  // One level by the socket's path.
  auto by_socket = around_.broker_launch();
  const auto made = around_.folder() / "made";
  by_socket.command = {command(), "broker", "--socket", (made / "b.sock").string()};
  by_socket.environment["TUGLINE_TOKEN"] = "xyz";
  expect_failure({by_socket}, "invalid_argument", HasSubstr("token"));
  EXPECT_FALSE(fs::exists(made));
}

TEST_F(Start, ADirectoryThatOthersCanReachIsRefusedByAll) {
  const auto runtime = around_.runtime().string();
  auto starts = all_starts();
  auto by_socket = around_.broker_launch();
  by_socket.command = {command(), "broker", "--socket", runtime + "/b.sock"};
  starts.push_back(by_socket);
  const auto expect_refused = [&](const std::string& part) {
    expect_failure(starts, "permission_denied", AllOf(HasSubstr(runtime), HasSubstr(part)));
    auto doctor = around_.broker_launch();
    doctor.command = {command(), "doctor"};
    Process process(doctor);
    EXPECT_THAT(process.wait().output,
                AllOf(HasSubstr(part), ::testing::Not(HasSubstr("this user's alone"))));
  };
  fs::create_directory(runtime);
  for (const mode_t mode : {0777U, 01777U, 0750U}) {
    ASSERT_EQ(::chmod(runtime.c_str(), mode), 0);
    expect_refused("others could reach the broker");
  }
  fs::remove(runtime);
  const auto elsewhere = around_.folder() / "elsewhere";
  fs::create_directory(elsewhere);
  fs::permissions(elsewhere, fs::perms::owner_all);
  fs::create_directory_symlink(elsewhere, runtime);
  expect_refused("symbolic link");
  fs::remove(runtime);
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make another user's directory";
  fs::create_directory(runtime);
  fs::permissions(runtime, fs::perms::owner_all);
  ASSERT_EQ(::chown(runtime.c_str(), 65534, 65534), 0);
  expect_refused("belongs to user 65534");
}

TEST_F(Start, ABrokerThatWasKilledIsNotReplacedByAnEmptyOne) {
  auto broker = around_.broker();
  broker->kill(SIGKILL);
  broker->wait();
  auto run = around_.broker_launch();
  run.command = {command(), "run",     "-n",      "2", "--no-prefix", "--broker", around_.socket_path(),
                 "--",      program(), "start_up"};
  Process process(run);
  const auto end = process.wait(5s);
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(expect_three_lines(end.error, "not_found"),
              HasSubstr("no broker answers at \"" + around_.socket_path() + "\""));
  EXPECT_THAT(end.error, HasSubstr("tugline broker --job"));
  EXPECT_TRUE(around_.brokers().empty());
}

TEST_F(Start, WhatAKilledBrokerLeftGoesWithTheNextStart) {
  auto broker = around_.broker();
  const auto left = around_.files();
  ASSERT_EQ(left.size(), 3U) << ::testing::PrintToString(left);
  broker->kill(SIGKILL);
  broker->wait();
  fs::create_directory(around_.runtime() / "empty");  // a start that was killed early
  fs::permissions(around_.runtime() / "empty", fs::perms::owner_all);
  fs::create_directory(around_.runtime() / "notes");  // nothing of a broker's
  fs::permissions(around_.runtime() / "notes", fs::perms::owner_all);
  std::ofstream(around_.runtime() / "notes" / "mine") << "stays";
  // Another job's start.
  auto run = around_.broker_launch();
  run.command = {command(), "run", "-n", "2", "--no-prefix", "--", program(), "collectives"};
  Process process(run);
  EXPECT_EQ(process.wait().exit_code, 0);
  EXPECT_TRUE(eventually([&] { return around_.files().size() == 2; }))
      << ::testing::PrintToString(around_.files());
  EXPECT_TRUE(fs::exists(around_.runtime() / "notes" / "mine"));
}

TEST_F(Start, ALivingBrokerIsNotTidiedAway) {
  auto broker = around_.broker();
  auto run = around_.broker_launch();
  run.command = {command(), "run", "-n", "2", "--no-prefix", "--", program(), "collectives"};
  for (int round = 0; round < 3; ++round) EXPECT_EQ(Process(run).wait().exit_code, 0);
  auto ranks = around_.ranks(2, {"collectives"});
  wait_for_all(ranks, 0);
  broker->kill(SIGTERM);
  broker->wait();
  EXPECT_TRUE(around_.nothing_left());
}

}  // namespace
}  // namespace tugline::process

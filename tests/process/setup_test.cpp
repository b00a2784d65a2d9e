// SPDX-License-Identifier: Apache-2.0
// Jobs in surroundings that are narrow, strange or wrong: each works, or says in three lines why not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "processes.h"

namespace tugline::process {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kRefused = 77;

/// For children only: a mount namespace whose changes nobody else sees.
void own_mounts() {
  if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    ::_exit(kRefused);
}

void small_shm() {
  own_mounts();
  if (::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64k") != 0) ::_exit(kRefused);
}

/// Goes on as process 1 of PID and IPC namespaces of its own, with its own /proc; the process that the test
/// started waits for it and ends as it does.
void own_processes() {
  if (::unshare(CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNS) != 0) ::_exit(kRefused);
  const pid_t inner = ::fork();
  if (inner < 0) ::_exit(kRefused);
  if (inner != 0) {
    int status = 0;
    while (::waitpid(inner, &status, 0) < 0 && errno == EINTR) {
    }
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("proc", "/proc", "proc", 0, nullptr) != 0 ||
      ::mount("tmpfs", "/dev/shm", "tmpfs", 0, nullptr) != 0)
    ::_exit(kRefused);
}

/// Why the kernel refuses `prepare`; empty when it does not.
std::string refusal(const std::function<void()>& prepare) {
  const pid_t child = ::fork();
  if (child == 0) {
    prepare();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  return "the kernel or container allows no namespaces or mounts here (run as root)";
}

class Setup : public ::testing::Test {
 protected:
  void expect_nothing_left() {
    EXPECT_TRUE(around_.nothing_left()) << ::testing::PrintToString(around_.files()) << " brokers "
                                        << ::testing::PrintToString(around_.brokers());
  }
  /// Starts one rank that cannot join, and gives its error.
  std::string error_of(Launch launch) {
    Process process(launch);
    const auto end = process.wait();
    EXPECT_EQ(end.exit_code, 1) << end.output << end.error;
    return end.error;
  }
  Surroundings around_;
};

TEST_F(Setup, WorksWithATinySharedMemoryFileSystem) {
  if (const auto why = refusal(small_shm); !why.empty()) GTEST_SKIP() << why;
  auto ranks = around_.ranks(3, {"collectives"}, small_shm);
  wait_for_all(ranks, 0);
  expect_nothing_left();
}

TEST_F(Setup, WorksBetweenNamespacesThatShareTheSocketsDirectoryOnly) {
  if (const auto why = refusal(own_processes); !why.empty()) GTEST_SKIP() << why;
  auto broker = around_.broker();
  auto ranks = around_.ranks(3, {"collectives"}, own_processes);
  wait_for_all(ranks, 0);
  broker->kill(SIGTERM);
  EXPECT_EQ(broker->wait().exit_code, 0);
  expect_nothing_left();
}

TEST_F(Setup, ADeathIsNoticedBetweenNamespaces) {
  if (const auto why = refusal(own_processes); !why.empty()) GTEST_SKIP() << why;
  auto broker = around_.broker();
  auto ranks = around_.ranks(3, {"wait_at", "loop"}, own_processes);
  for (auto& rank : ranks) ASSERT_TRUE(rank->has_said("ready")) << rank->error();
  // Its namespace's first process goes with the one that the test started.
  ranks[1]->kill(SIGKILL);
  ranks[1]->wait();
  ranks.erase(ranks.begin() + 1);
  for (auto& rank : ranks) rank->say("go");
  for (const auto& end : wait_for_all(ranks, 0)) {
    EXPECT_THAT(end.output, HasSubstr("lost 1\n"));
    EXPECT_THAT(expect_three_lines(end.error, "peer_lost"), HasSubstr("rank 1"));
  }
  broker->kill(SIGTERM);
  broker->wait();
  expect_nothing_left();
}

/// A memory control group of version 1 or 2 below the root one; removed with this.
class ControlGroup {
 public:
  explicit ControlGroup(std::uint64_t limit_bytes) {
    const auto name = "tugline-test-" + std::to_string(::getpid());
    for (const auto& [root, file] :
         {std::pair{std::string("/sys/fs/cgroup/memory/"), "memory.limit_in_bytes"},
          std::pair{std::string("/sys/fs/cgroup/"), "memory.max"}}) {
      if (::access((root + "cgroup.procs").c_str(), W_OK) != 0 || ::mkdir((root + name).c_str(), 0755) != 0)
        continue;
      folder_ = root + name;
      std::ofstream limit(folder_ + "/" + file);
      limit << limit_bytes << std::flush;
      if (limit) return;
      ::rmdir(folder_.c_str());
      folder_.clear();
    }
  }
  ~ControlGroup() {
    if (folder_.empty()) return;
    EXPECT_TRUE(eventually([this] { return ::rmdir(folder_.c_str()) == 0; }, 10s));
  }
  ControlGroup(const ControlGroup&) = delete;
  ControlGroup& operator=(const ControlGroup&) = delete;
  bool usable() const noexcept { return !folder_.empty(); }
  /// For children only.
  void enter() const {
    std::ofstream members(folder_ + "/cgroup.procs");
    members << "0" << std::flush;
    if (!members) ::_exit(kRefused);
  }

 private:
  std::string folder_;
};

TEST_F(Setup, MoreMemoryThanTheControlGroupAllowsIsAnErrorAndNoKill) {
  constexpr std::uint64_t kLimit = 64 << 20;
  const ControlGroup group(kLimit);
  if (!group.usable()) GTEST_SKIP() << "no writable memory control group with a limit is here (run as root)";
  auto broker = around_.broker();
  auto launch = around_.rank(0, 1, {"allocate", "268435456"});
  launch.before_exec = [&group] { group.enter(); };
  const auto first = expect_three_lines(error_of(launch), "out_of_memory");
  EXPECT_THAT(first, AllOf(HasSubstr("268435456 bytes"), HasSubstr("are free in the control group")));
  // What fits is given, in the same group.
  launch.command.back() = "8388608";
  Process fitting(launch);
  const auto end = fitting.wait();
  EXPECT_EQ(end.exit_code, 0) << end.signal << end.error;
  broker->kill(SIGTERM);
  broker->wait();
  expect_nothing_left();
}

TEST_F(Setup, ASocketPathThatIsTooLongIsNamed) {
  auto launch = around_.rank(0, 1, {"collectives"});
  const std::string name(120, 's');
  launch.environment["TUGLINE_SOCKET_PATH"] = (around_.folder() / name).string();
  EXPECT_THAT(expect_three_lines(error_of(launch), "invalid_argument"),
              AllOf(HasSubstr("too long"), HasSubstr("120"), HasSubstr(name)));
}

TEST_F(Setup, ARuntimeDirectoryThatIsAFileIsNamed) {
  std::ofstream(around_.runtime()) << "in the way";
  const auto first = expect_three_lines(error_of(around_.rank(0, 1, {"collectives"})), "not_found");
  EXPECT_THAT(first, HasSubstr(around_.runtime().string()));
}

TEST_F(Setup, ARuntimeDirectoryThatCannotBeWrittenIsNamed) {
  // Root may write whatever the mode says, but not to a read-only mount.
  const std::string runtime = around_.runtime().string();
  ASSERT_EQ(::mkdir(runtime.c_str(), 0700), 0);
  const auto read_only = [runtime] {
    own_mounts();
    if (::mount(runtime.c_str(), runtime.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        ::mount(nullptr, runtime.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0)
      ::_exit(kRefused);
  };
  if (const auto why = refusal(read_only); !why.empty()) GTEST_SKIP() << why;
  auto launch = around_.rank(0, 1, {"collectives"});
  launch.before_exec = read_only;
  EXPECT_THAT(expect_three_lines(error_of(launch), "permission_denied"), HasSubstr(runtime));
}

TEST_F(Setup, AForeignTokenIsRefused) {
  auto broker = around_.broker();
  auto launch = around_.rank(0, 1, {"collectives"});
  launch.environment["TUGLINE_TOKEN"] = std::string(64, 'a');
  EXPECT_THAT(expect_three_lines(error_of(launch), "permission_denied"), HasSubstr("token"));
  // The job's own members are not disturbed.
  auto ranks = around_.ranks(2, {"collectives"});
  wait_for_all(ranks, 0);
  broker->kill(SIGTERM);
  broker->wait();
  expect_nothing_left();
}

TEST_F(Setup, ASecondBrokerOnTheSameJobIsRefused) {
  auto broker = around_.broker();
  EXPECT_THAT(expect_three_lines(error_of(around_.broker_launch()), "already_exists"),
              HasSubstr(around_.socket_path()));
  auto ranks = around_.ranks(2, {"collectives"});
  wait_for_all(ranks, 0);
  broker->kill(SIGTERM);
  broker->wait();
  expect_nothing_left();
}

// The next job may come while the broker has not yet heard of every death of the one before.
TEST_F(Setup, AJobMayFollowAtOnceOnOneThatWasKilled) {
  auto broker = around_.broker();
  for (int round = 0; round < 15; ++round) {
    auto ranks = around_.ranks(3, {"start_up"});
    for (auto& rank : ranks) ASSERT_TRUE(rank->has_said("up")) << "round " << round << "\n" << rank->error();
    for (auto& rank : ranks) rank->kill(SIGKILL);
    for (auto& rank : ranks) EXPECT_EQ(rank->wait().signal, SIGKILL);
  }
  auto ranks = around_.ranks(3, {"collectives"});
  wait_for_all(ranks, 0);
  broker->kill(SIGTERM);
  EXPECT_EQ(broker->wait().exit_code, 0);
  expect_nothing_left();
}

TEST_F(Setup, NamedBuffersAreFoundAfterAllRanksWereKilled) {
  auto broker = around_.broker();
  auto ranks = around_.ranks(3, {"named_write", "41"});
  for (auto& rank : ranks) ASSERT_TRUE(rank->has_said("ready")) << rank->error();
  for (auto& rank : ranks) rank->kill(SIGKILL);
  for (auto& rank : ranks) EXPECT_EQ(rank->wait().signal, SIGKILL);
  Process finder(around_.rank(0, 1, {"named_find", "41", "3"}));
  const auto end = finder.wait();
  EXPECT_EQ(end.exit_code, 0) << end.error;
  EXPECT_THAT(end.output, HasSubstr("found\n"));
  broker->kill(SIGTERM);
  EXPECT_EQ(broker->wait().exit_code, 0);
  expect_nothing_left();
}

}  // namespace
}  // namespace tugline::process

// SPDX-License-Identifier: Apache-2.0
// Brokers that the first process of a job starts: what they inherit, who wins the race, when they end.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/clock.h"
#include "base/shared_memory.h"
#include "broker/connect.h"
#include "broker/identity.h"
#include "expect_error.h"
#include "process_server.h"

namespace tugline::broker::testing {
namespace {

JoinRequest spawning(const std::string& job, int rank = 0, int size = 1) {
  JoinRequest request;
  request.job = job;
  request.rank = rank;
  request.size = size;
  return request;
}

pid_t broker_pid(const std::string& job) {
  const auto found = find_broker(place_of({}, job), job, {}, WhenAbsent::fail,
                                 base::running_deadline(std::chrono::seconds(10)));
  return peer_identity(found.socket.get()).pid;
}

bool ends(pid_t pid) {
  const auto pidfd = pidfd_of(pid);
  return !pidfd || eventually([&] { return has_ended(pidfd.get()); });
}

std::string read_all(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string status_line(pid_t pid, const std::string& key) {
  std::istringstream text(read_all("/proc/" + std::to_string(pid) + "/status"));
  for (std::string line; std::getline(text, line);)
    if (line.rfind(key + ":", 0) == 0) return line.substr(line.find_first_not_of(" \t", key.size() + 1));
  return {};
}

TEST(Spawn, TheBrokerInheritsNothing) {
  // In a child, so that what is done to this process ends with it.
  const auto job = fresh_job();
  Gate done;
  Gate checked;
  Child rank([&] {
    base::UniqueFd secret(::open("/proc/self/maps", O_RDONLY));  // not close-on-exec
    int ends_of_pipe[2];
    if (::pipe(ends_of_pipe) != 0) return 1;
    ::setenv("SECRET_OF_THE_RANK", "1", 1);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    if (::sched_setaffinity(0, sizeof(one), &one) != 0) return 2;
    ::signal(SIGUSR1, SIG_IGN);
    sigset_t blocked;
    ::sigemptyset(&blocked);
    ::sigaddset(&blocked, SIGTERM);
    ::sigprocmask(SIG_BLOCK, &blocked, nullptr);
    const auto member = Client::join(spawning(job));
    done.open();
    return checked.wait() ? 0 : 3;
  });
  ASSERT_TRUE(done.wait());
  const auto pid = broker_pid(job);
  const auto folder = "/proc/" + std::to_string(pid);
  for (const auto& target : descriptors_of(pid))
    EXPECT_THAT(target, ::testing::AnyOf(
                            "/dev/null", ::testing::HasSubstr("socket:"), ::testing::HasSubstr("eventpoll"),
                            ::testing::HasSubstr("eventfd"), ::testing::HasSubstr("pidfd"),
                            ::testing::HasSubstr("memfd:tugline-control"), test_runtime_dir() + "/" + job));
  const auto environment = read_all(folder + "/environ");
  EXPECT_THAT(environment, ::testing::Not(::testing::HasSubstr("SECRET")));
  EXPECT_THAT(environment, ::testing::Not(::testing::HasSubstr("TUGLINE_BROKER_BIN")));
  EXPECT_EQ(std::filesystem::read_symlink(folder + "/cwd"), "/");
  EXPECT_NE(::getsid(pid), ::getsid(0));
  EXPECT_NE(::getsid(pid), ::getsid(rank.pid()));
  EXPECT_NE(::getsid(pid), pid) << "a session leader could get a terminal";
  EXPECT_EQ(status_line(pid, "Cpus_allowed"), status_line(::getpid(), "Cpus_allowed"));
  EXPECT_EQ(status_line(pid, "SigBlk"), "0000000000000000");
  // 32 and 33 belong to the C library, which lets nobody change them; some launchers leave them ignored.
  constexpr std::uint64_t kOfTheLibrary = std::uint64_t{3} << 31;
  EXPECT_EQ(std::stoull(status_line(pid, "SigIgn"), nullptr, 16) & ~kOfTheLibrary, 0u);
  EXPECT_EQ(status_line(pid, "Umask"), "0077");
  EXPECT_NE(status_line(pid, "PPid"), std::to_string(rank.pid()));
  for (int fd = 0; fd < 3; ++fd)
    EXPECT_EQ(std::filesystem::read_symlink(folder + "/fd/" + std::to_string(fd)), "/dev/null");
  checked.open();
  EXPECT_EQ(rank.wait(), 0);
  EXPECT_TRUE(ends(pid));
}

TEST(Spawn, TheLastToLeaveEndsIt) {
  const auto job = fresh_job();
  auto first = Client::join(spawning(job, 0, 2));
  auto second = Client::join(spawning(job, 1, 2));
  const auto pid = broker_pid(job);
  const auto pidfd = pidfd_of(pid);
  ASSERT_TRUE(pidfd);
  EXPECT_THAT(entries_of(test_runtime_dir() + "/" + job),
              ::testing::UnorderedElementsAre("broker.sock", "token"));
  first->leave();
  second->put("still", "here");
  second->leave();
  EXPECT_FALSE(std::filesystem::exists(test_runtime_dir() + "/" + job));
  EXPECT_TRUE(ends(pid));
}

TEST(Spawn, ItEndsTooWhenTheLastIsKilled) {
  const auto job = fresh_job();
  Gate ready;
  Child rank([&] {
    const auto member = Client::join(spawning(job));
    member->create("scratch", 4096, Lifetime::referenced);
    ready.open();
    return member->get("never", 60s).empty() ? 0 : 1;
  });
  ASSERT_TRUE(ready.wait());
  const auto pid = broker_pid(job);
  rank.kill(SIGKILL);
  rank.wait();
  EXPECT_TRUE(ends(pid));
  EXPECT_FALSE(std::filesystem::exists(test_runtime_dir() + "/" + job));
}

TEST(Spawn, AKilledServersWeightsWaitForItsSuccessor) {
  const auto job = fresh_job();
  Child server([&] {
    const auto member = Client::join(spawning(job));
    const auto segment = member->create("weights", 4096, Lifetime::persistent);
    const base::Mapping mapping(segment.descriptor.get(), segment.bytes, base::Access::read_write);
    std::strcpy(static_cast<char*>(mapping.data()), "trained");
    ::kill(::getpid(), SIGKILL);
    return 1;
  });
  EXPECT_EQ(server.wait(), 128 + SIGKILL);
  auto successor = Client::join(spawning(job));
  const auto segment = successor->open("weights");
  const base::Mapping mapping(segment.descriptor.get(), segment.bytes, base::Access::read_only);
  EXPECT_STREQ(static_cast<const char*>(mapping.data()), "trained");
  const auto pid = broker_pid(job);
  successor->leave();
  EXPECT_TRUE(ends(pid));  // this time in good order
}

TEST(Spawn, OfSeveralFirstProcessesOneStartsIt) {
  constexpr int kRanks = 8;
  for (int round = 0; round < 5; ++round) {
    const auto job = fresh_job();
    Gate start[kRanks];
    std::vector<std::unique_ptr<Child>> ranks;
    for (int rank = 0; rank < kRanks; ++rank)
      ranks.push_back(std::make_unique<Child>([&, rank] {
        if (!start[rank].wait()) return 1;
        const auto member = Client::join(spawning(job, rank, kRanks));
        member->put("pid of " + std::to_string(rank), std::to_string(broker_pid(job)));
        std::set<std::string> pids;
        for (int other = 0; other < kRanks; ++other)
          pids.insert(member->get("pid of " + std::to_string(other), 20s));
        member->put("done " + std::to_string(rank), "1");
        for (int other = 0; other < kRanks; ++other) member->get("done " + std::to_string(other), 20s);
        return pids.size() == 1 ? 0 : 2;
      }));
    for (auto& gate : start) gate.open();
    for (auto& rank : ranks) EXPECT_EQ(rank->wait(), 0);
    EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(test_runtime_dir() + "/" + job); }));
  }
}

TEST(Spawn, AfterAKilledBrokerThereIsANewOne) {
  const auto job = fresh_job();
  auto first = Client::join(spawning(job));
  const auto old_pid = broker_pid(job);
  ::kill(old_pid, SIGKILL);
  EXPECT_TRUE(ends(old_pid));
  EXPECT_THAT(entries_of(test_runtime_dir() + "/" + job),
              ::testing::UnorderedElementsAre("broker.sock", "token"));
  const auto second = Client::join(spawning(job));
  EXPECT_NE(broker_pid(job), old_pid);
  second->put("k", "v");
  EXPECT_ERROR(first->put("k", "v"), ErrorCode::broker_lost, "is gone");
}

TEST(Spawn, AnExplicitSocketPathWorksToo) {
  auto request = spawning(fresh_job());
  request.socket_path = test_runtime_dir() + "/elsewhere/a.sock";
  auto member = Client::join(request);
  EXPECT_EQ(member->socket_path(), request.socket_path);
  EXPECT_THAT(entries_of(test_runtime_dir() + "/elsewhere"),
              ::testing::UnorderedElementsAre("a.sock", "token"));
  member->leave();
  EXPECT_TRUE(eventually([] { return entries_of(test_runtime_dir() + "/elsewhere").empty(); }));
  std::filesystem::remove(test_runtime_dir() + "/elsewhere");
}

TEST(Spawn, ATokenGivenIsTheJobsToken) {
  auto request = spawning(fresh_job());
  request.token = std::string(64, 'c');
  const auto member = Client::join(request);
  auto other = request;
  other.token = std::string(64, 'd');
  EXPECT_ERROR(Client::join(other), ErrorCode::permission_denied, "token is not this job's");
  const auto environment = read_all("/proc/" + std::to_string(broker_pid(request.job)) + "/cmdline");
  EXPECT_THAT(environment, ::testing::Not(::testing::HasSubstr("cccc")));
}

TEST(Spawn, WithoutAJobNameTheJobIsPrivate) {
  const auto one = Client::join(spawning({}));
  const auto two = Client::join(spawning({}));
  EXPECT_NE(one->job(), two->job());
}

TEST(Spawn, StartUpIsQuick) {
  constexpr int kRanks = 4;
  const auto job = fresh_job();
  std::vector<double> milliseconds;
  Gate start[kRanks];
  std::vector<std::unique_ptr<Child>> ranks;
  const auto begin = std::chrono::steady_clock::now();
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.push_back(std::make_unique<Child>([&, rank] {
      if (!start[rank].wait()) return 1;
      const auto from = base::monotonic_ns();
      const auto member = Client::join(spawning(job, rank, kRanks));
      member->put("took " + std::to_string(rank), std::to_string((base::monotonic_ns() - from) / 1000));
      if (rank == 0)
        for (int other = 0; other < kRanks; ++other)
          std::printf("rank %d joined in %s us\n", other,
                      member->get("took " + std::to_string(other), 20s).c_str());
      std::fflush(stdout);
      return 0;
    }));
  for (auto& gate : start) gate.open();
  for (auto& rank : ranks) EXPECT_EQ(rank->wait(), 0);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  RecordProperty("four_ranks_ms", std::to_string(took.count()));
  // Milliseconds when idle; the limit allows for a sanitizer and a loaded machine.
  EXPECT_LT(took.count(), 3000);
}

TEST(BrokerProcess, StartsWhereAnotherIsJustEnding) {
  const auto job = fresh_job();
  for (int round = 0; round < 4; ++round) {
    // The spawned broker's process may take a little longer than its last member's good-bye.
    Client::join(spawning(job))->leave();
    BrokerProcess broker(job);
    EXPECT_TRUE(broker.running());
  }
}

TEST(BrokerProcess, HandsTheConfiguredLimitsToTheBroker) {
  Child rank([] {
    ::setenv("TUGLINE_MEMBER_LIMIT_BYTES", "8192", 1);
    const auto member = Client::join(spawning(fresh_job()));
    member->create("fits", 8192, Lifetime::referenced);
    try {
      member->create("too much", 4096, Lifetime::referenced);
    } catch (const Error& error) {
      return error.code() == ErrorCode::out_of_memory ? 0 : 1;
    }
    return 2;
  });
  EXPECT_EQ(rank.wait(), 0);
}

TEST(BrokerProcess, ServesUntilItIsStopped) {
  const auto job = fresh_job();
  BrokerProcess broker(job);
  EXPECT_TRUE(broker.running());
  EXPECT_EQ(broker.socket_path(), test_runtime_dir() + "/" + job + "/broker.sock");
  auto request = spawning(job);
  request.token = broker.token_hex();
  request.spawn_broker = false;
  {
    const auto member = Client::join(request);
    EXPECT_ERROR(BrokerProcess{job}, ErrorCode::already_exists, "another broker");
    member->leave();
  }
  // Its owner lives: it does not end with its last member.
  EXPECT_EQ(Client::join(request)->rank(), 0);
  EXPECT_TRUE(broker.running());
  const auto pid = broker.pid();
  broker.stop();
  EXPECT_FALSE(broker.running());
  EXPECT_TRUE(ends(pid));
  EXPECT_FALSE(std::filesystem::exists(test_runtime_dir() + "/" + job));
}

TEST(BrokerProcess, EndsAfterItsOwnerAndTheLastMember) {
  const auto job = fresh_job();
  Gate ready;
  const std::string token_file = test_runtime_dir() + "/" + job + "/token";
  Child owner([&] {
    BrokerProcess broker(job);
    ready.open();
    Gate never;
    return never.wait(60s) ? 0 : 1;
  });
  ASSERT_TRUE(ready.wait());
  auto request = spawning(job);
  request.spawn_broker = false;
  const auto member = Client::join(request);
  const auto pid = broker_pid(job);
  owner.kill(SIGKILL);
  owner.wait();
  member->put("still", "served");
  member->leave();
  EXPECT_TRUE(ends(pid));
  EXPECT_FALSE(std::filesystem::exists(test_runtime_dir() + "/" + job));
}

}  // namespace
}  // namespace tugline::broker::testing

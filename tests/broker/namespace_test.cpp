// SPDX-License-Identifier: Apache-2.0
// Members in PID and IPC namespaces of their own, as containers are: what they share with the broker is the
// socket's directory, nothing else. And a process of another user, which shares nothing.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/shared_memory.h"
#include "broker/connect.h"
#include "broker/identity.h"
#include "expect_error.h"
#include "process_server.h"

namespace tugline::broker::testing {
namespace {

constexpr int kNotAllowed = 77;

void write_file(const char* path, const std::string& text) {
  std::ofstream(path) << text;
}

/// Runs `body` as process 1 of fresh PID, IPC and network namespaces (and a user namespace, unless root).
/// Returns its code, or kNotAllowed.
int in_own_namespaces(const std::function<int()>& body) {
  const auto uid = ::geteuid();
  const auto gid = ::getegid();
  int flags = CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNET;
  if (uid != 0) flags |= CLONE_NEWUSER;
  if (::unshare(flags) != 0) {
    std::fprintf(stderr, "unshare: %s\n", std::strerror(errno));
    return kNotAllowed;
  }
  if (uid != 0) {
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/uid_map", "0 " + std::to_string(uid) + " 1");
    write_file("/proc/self/gid_map", "0 " + std::to_string(gid) + " 1");
  }
  const pid_t first = ::fork();
  if (first == 0) {
    int code = 99;
    try {
      code = ::getpid() == 1 ? body() : 98;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "in namespaces: %s\n", error.what());
    }
    ::_exit(code);
  }
  int status = 0;
  while (::waitpid(first, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define SKIP_IF_NOT_ALLOWED(code)                                        \
  if ((code) == kNotAllowed)                                             \
  GTEST_SKIP() << "the kernel or container does not allow unshare() of " \
                  "namespaces"

TEST(Namespaces, MembersShareMemoryAcrossThem) {
  ProcessServer server;
  const auto outside = server.join(0, 3);
  const auto rank_in_namespaces = [&](int rank) {
    return in_own_namespaces([&, rank] {
      const auto member = server.join(rank, 3);
      auto segment = member->open_or_create("shared", 4096, Lifetime::referenced);
      const base::Mapping mapping(segment.descriptor.get(), segment.bytes, base::Access::read_write);
      static_cast<char*>(mapping.data())[rank] = static_cast<char>('a' + rank);
      member->put("wrote " + std::to_string(rank), "1");
      for (int other = 0; other < 3; ++other) member->get("wrote " + std::to_string(other), 20s);
      const bool all = std::memcmp(mapping.data(), "abc", 3) == 0;
      member->put("read " + std::to_string(rank), "1");
      member->get("end", 20s);
      return all ? 0 : 1;
    });
  };
  Child one([&] { return rank_in_namespaces(1); });
  Child two([&] { return rank_in_namespaces(2); });
  auto segment = outside->open_or_create("shared", 4096, Lifetime::referenced);
  const base::Mapping mapping(segment.descriptor.get(), segment.bytes, base::Access::read_write);
  static_cast<char*>(mapping.data())[0] = 'a';
  outside->put("wrote 0", "1");
  outside->put("end", "1");
  const int code = one.wait();
  SKIP_IF_NOT_ALLOWED(code);
  EXPECT_EQ(code, 0);
  EXPECT_EQ(two.wait(), 0);
  EXPECT_STREQ(static_cast<const char*>(mapping.data()), "abc");
}

TEST(Namespaces, AKilledMemberIsNoticedAcrossThem) {
  ProcessServer server;
  const auto survivor = server.join(0, 2);
  Gate ready;
  Child victim([&] {
    return in_own_namespaces([&] {
      const auto member = server.join(1, 2);
      ready.open();
      member->create("theirs", 1 << 16, Lifetime::referenced);
      // Process 1 of a namespace ignores signals from within: it is killed from outside, by its parent's end.
      return member->get("never", 60s).empty() ? 0 : 1;
    });
  });
  if (!ready.wait(5s)) {
    const int code = victim.wait();
    SKIP_IF_NOT_ALLOWED(code);
    FAIL() << "the member ended with " << code;
  }
  // The child of `victim` is process 1 in there; its number out here stands in /proc.
  std::ifstream children("/proc/" + std::to_string(victim.pid()) + "/task/" + std::to_string(victim.pid()) +
                         "/children");
  pid_t inner = 0;
  if (!(children >> inner)) GTEST_SKIP() << "this kernel has no /proc/<pid>/task/<tid>/children";
  ::kill(inner, SIGKILL);
  EXPECT_EQ(victim.wait(), 128 + SIGKILL);
  EXPECT_TRUE(eventually([&] {
    const auto& slots = survivor->control().members;
    for (MemberId id = 0; id < core::kMaxMembers; ++id)
      if (core::state_of(slots[id]) == core::MemberState::dead) return slots[id].rank.load() == 1;
    return false;
  }));
}

TEST(Namespaces, ABrokerInOneServesMembersInAnother) {
  const auto job = fresh_job();
  const auto request_of = [&](int rank) {
    JoinRequest request;
    request.job = job;
    request.rank = rank;
    request.size = 2;
    return request;
  };
  // Whoever comes first spawns the broker into its own namespaces; the other is in sibling ones, where pids
  // mean nothing to the broker.
  const auto rank_in_namespaces = [&](int rank) {
    return in_own_namespaces([&, rank] {
      const auto member = Client::join(request_of(rank));
      member->put("hello " + std::to_string(rank), "1");
      member->get("hello " + std::to_string(1 - rank), 20s);
      // The broker lives in the namespace of one of us, and ends with it.
      member->put("bye " + std::to_string(rank), "1");
      member->get("bye " + std::to_string(1 - rank), 20s);
      return 0;
    });
  };
  Child one([&] { return rank_in_namespaces(0); });
  Child two([&] { return rank_in_namespaces(1); });
  const int code = one.wait();
  SKIP_IF_NOT_ALLOWED(code);
  // Who hosts the broker may end it under the other's last request.
  const int other = two.wait();
  EXPECT_TRUE(code == 0 || other == 0) << code << ", " << other;
}

TEST(OtherUsers, AreRefusedByTheDirectoryAndByTheBroker) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  ProcessServer server;
  const auto request = server.request();
  const auto as_nobody = [&](const std::function<int()>& body) {
    Child other([&] { return ::setgid(65534) == 0 && ::setuid(65534) == 0 ? body() : 50; });
    return other.wait();
  };
  ASSERT_EQ(::chmod(test_runtime_dir().c_str(), 0755), 0);
  EXPECT_EQ(as_nobody([&] {
              try {
                Client::join(request);
              } catch (const Error& error) {
                return error.code() == ErrorCode::permission_denied ? 0 : 1;
              }
              return 2;
            }),
            0);
  // Even with the directory open to all and the right token, the socket knows who is there.
  const auto socket_path = server.process().socket_path();
  ASSERT_EQ(::chmod(server.directory().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(socket_path.c_str(), 0666), 0);
  const auto place = place_of({}, server.job());
  EXPECT_EQ(
      as_nobody([&] {
        const base::UniqueFd folder(::open(place.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        int reason = 0;
        const auto socket = connect_to(place, folder.get(), reason);
        if (!socket) return 10;
        core::Hello hello;
        const auto token = parse_token(server.process().token_hex());
        std::copy(token->begin(), token->end(), hello.token.begin());
        core::FrameWriter frame;
        core::encode(hello, 1, frame);
        const auto pidfd = own_pidfd();
        send_raw(socket.get(), frame.bytes(), {pidfd.get()});
        const auto reply = receive_raw(socket.get());
        if (reply.failure.code != ErrorCode::permission_denied) return 11;
        return reply.failure.what_failed.find("user 65534") != std::string::npos ? 0 : 12;
      }),
      0);
  ASSERT_EQ(::chmod(server.directory().c_str(), 0700), 0);
  ASSERT_EQ(::chmod(test_runtime_dir().c_str(), 0700), 0);
  EXPECT_EQ(server.join()->rank(), 0);
}

}  // namespace
}  // namespace tugline::broker::testing

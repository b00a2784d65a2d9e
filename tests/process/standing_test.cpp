// SPDX-License-Identifier: Apache-2.0
// Who may not speak for a member: a forked child of it, and a rank that has left. Every call says so and
// changes nothing; and leaving is no error and takes no longer than it must.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "processes.h"
#include "tugline/tugline.hpp"

namespace tugline::process {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

/// One rank with one thing of everything.
struct Member {
  Member(const Surroundings& around, int rank, int size)
      : job(Job::join(
            {.rank = rank, .size = size, .job = around.job(), .socket_path = around.socket_path()})),
        comm(job.communicator()),
        named(job.named_buffer<float>("weights/" + std::to_string(rank), 8)),
        buffer(job.allocate<float>(8)),
        pool(job.pool()) {
    named.next()[0] = 1;
    named.publish(1);
  }

  float sum(float value) {
    comm.all_reduce(&value, &value, 1, DataType::f32, ReduceOp::sum);
    return value;
  }

  /// Every call that reaches what is shared, and its name.
  std::vector<std::pair<std::string, std::function<void()>>> calls() {
    float* one = values;
    float* many = values + 16;
    const auto f32 = DataType::f32;
    const auto plus = ReduceOp::sum;
    return {
        {"all_reduce", [=, this] { comm.all_reduce(one, one, 1, f32, plus); }},
        {"large all_reduce", [=, this] { comm.all_reduce(many, many, 1024, f32, plus); }},
        {"all_gather", [=, this] { comm.all_gather(one, many, 1, f32); }},
        {"reduce_scatter", [=, this] { comm.reduce_scatter(many, one, 1, f32, plus); }},
        {"broadcast", [=, this] { comm.broadcast(one, one, 1, f32, 0); }},
        {"reduce", [=, this] { comm.reduce(one, many, 1, f32, plus, 0); }},
        {"gather", [=, this] { comm.gather(one, many, 1, f32, 0); }},
        {"scatter", [=, this] { comm.scatter(many, one, 1, f32, 0); }},
        {"all_to_all", [=, this] { comm.all_to_all(one, many, 1, f32); }},
        {"send", [=, this] { comm.send(one, 1, f32, 0); }},
        {"recv", [=, this] { comm.recv(one, 1, f32, 0); }},
        {"barrier", [this] { comm.barrier(); }},
        {"agree", [this] { (void)comm.agree(); }},
        {"split", [this] { (void)comm.split(0, 0); }},
        {"abort", [this] { comm.abort("no reason"); }},
        {"check", [this] { comm.check(); }},
        {"status",
         [this] {
           if (const auto code = comm.status().code; code != ErrorCode::ok)
             throw Error(code, "status", "see the code");
         }},
        {"communicator", [this] { (void)job.communicator(); }},
        {"put", [this] { job.put("key", "value"); }},
        {"get", [this] { (void)job.get("key", Milliseconds(1)); }},
        {"allocate", [this] { (void)job.allocate<float>(8); }},
        {"pool", [this] { (void)job.pool(); }},
        {"pool allocate", [this] { (void)pool.allocate(256, job.device().default_stream()); }},
        {"named_buffer", [this] { (void)job.named_buffer<float>("other", 8); }},
        {"next", [this] { named.next()[0] = 2; }},
        {"publish", [this] { named.publish(2); }},
        {"current", [this] { (void)named.current(); }},
    };
  }

  /// Calls that did not end in invalid_usage with these words, one a line.
  std::string calls_not_refused(const std::string& words) {
    std::string wrong;
    for (const auto& [name, call] : calls()) {
      try {
        call();
        wrong += name + ": no error\n";
      } catch (const Error& error) {
        if (error.code() != ErrorCode::invalid_usage ||
            (name != "status" && std::string(error.what()).find(words) == std::string::npos))
          wrong += name + ": " + error.what() + "\n";
      }
    }
    return wrong;
  }

  float values[4096] = {};
  Job job;
  Communicator comm;
  NamedBuffer<float> named;
  Buffer<float> buffer;
  MemoryPool& pool;
};

class StandingTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    for (int rank = 0; rank < GetParam(); ++rank)
      members_.emplace_back(std::in_place, around_, rank, GetParam());
    all_reduce();
  }

  /// Ranks are threads; every one must get the right sum.
  void all_reduce() {
    std::vector<std::thread> ranks;
    for (auto& member : members_)
      ranks.emplace_back([&] { EXPECT_EQ(member->sum(1), static_cast<float>(GetParam())); });
    for (auto& rank : ranks) rank.join();
  }

  Surroundings around_;
  std::unique_ptr<Process> broker_ = around_.broker();
  std::vector<std::optional<Member>> members_;
};

TEST_P(StandingTest, AForkedChildIsRefusedEveryCallAndItsParentGoesOn) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (auto& member : members_) {
      auto wrong = member->calls_not_refused("was forked from member process");
      member->job.leave();
      if (!wrong.empty() && ::write(ends[1], wrong.data(), wrong.size()) < 0) ::_exit(2);
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string wrong;
  char piece[4096];
  for (ssize_t got; (got = ::read(ends[0], piece, sizeof piece)) > 0;)
    wrong.append(piece, static_cast<std::size_t>(got));
  ::close(ends[0]);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(wrong, "");
  all_reduce();
  EXPECT_EQ(members_[0]->named.version(), 1U);
  EXPECT_EQ(members_[0]->named.current()[0], 1.0f);
  members_[0]->job.put("key", "of the parent");
  EXPECT_EQ(members_[0]->job.get("key", kPatience), "of the parent");
}

TEST_P(StandingTest, AfterLeaveEveryCallIsRefused) {
  for (auto& member : members_) {
    member->buffer.span()[7] = 5;
    member->job.leave();
    EXPECT_EQ(member->calls_not_refused("has left the job \"" + around_.job() + "\""), "");
    EXPECT_EQ(member->buffer.span()[7], 5.0f) << "what is mapped stays";
    member->job.leave();
  }
}

TEST_P(StandingTest, ABrokerThatIsStoppedHoldsNobodyUpForLong) {
  // Many things to give back: they must not be waited for one by one.
  std::vector<Buffer<float>> buffers;
  for (int i = 0; i < 4; ++i) buffers.push_back(members_[0]->job.allocate<float>(8));
  broker_->kill(SIGSTOP);
  const auto start = Clock::now();
  testing::internal::CaptureStderr();
  buffers.clear();
  std::vector<std::thread> ranks;
  for (auto& member : members_) ranks.emplace_back([&] { member.reset(); });
  for (auto& rank : ranks) rank.join();
  const auto text = testing::internal::GetCapturedStderr();
  const auto took = Clock::now() - start;
  broker_->kill(SIGCONT);
  // 2 s for all that a rank has to give back; the rest is a busy machine's.
  EXPECT_LT(took, 8s);
  EXPECT_THAT(text, AllOf(HasSubstr("rank 0 leaves without an answer"), HasSubstr("is stopped")));
}

INSTANTIATE_TEST_SUITE_P(Ranks, StandingTest, ::testing::Values(1, 2));

TEST(Standing, AJobThatWasMovedFromSaysSo) {
  Surroundings around;
  const auto broker = around.broker();
  auto job = Job::join({.rank = 0, .size = 1, .job = around.job(), .socket_path = around.socket_path()});
  auto comm = job.communicator();
  Group group;
  Job moved = std::move(job);
  const Communicator moved_comm = std::move(comm);
  const Group moved_group = std::move(group);
  const std::map<std::string, std::function<void()>> calls{
      {"put", [&] { job.put("key", "value"); }},
      {"rank", [&] { (void)job.rank(); }},
      {"size", [&] { (void)job.size(); }},
      {"name", [&] { (void)job.name(); }},
      {"device_count", [&] { (void)job.device_count(); }},
      {"device", [&] { (void)job.device(); }},
      {"communicator's size", [&] { (void)comm.size(); }},
      {"communicator's barrier", [&] { comm.barrier(); }},
      {"communicator's agree", [&] { (void)comm.agree(); }},
      {"empty communicator's name", [&] { (void)Communicator(nullptr).name(); }},
      {"group's size", [&] { (void)group.size(); }},
      {"call into the group", [&] { moved.communicator().barrier(group); }},
  };
  for (const auto& [name, call] : calls) {
    try {
      call();
      ADD_FAILURE() << name << " of an empty object";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_usage) << name;
      EXPECT_THAT(error.what(), testing::AnyOf(HasSubstr("was moved from"), HasSubstr("moved from, or")))
          << name;
    }
  }
}

}  // namespace
}  // namespace tugline::process

// SPDX-License-Identifier: Apache-2.0
// What only the host backend promises: whose thread runs what, and threads that exist only when needed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "conformance/contract.h"
#include "device/registry.h"

namespace tugline::device {
namespace {

using contract::code_of;
using contract::count;
using contract::fail;
using contract::Gate;
using contract::hold;

int threads_of_this_process() {
  int threads = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++threads;
  return threads;
}

TEST(HostStream, run_on_an_idle_stream_stays_on_the_callers_thread) {
  Stream stream = host_device(0).stream();
  std::thread::id ran_on;
  auto task = [&] {
    ran_on = std::this_thread::get_id();
    return Status::success();
  };
  (void)stream.ref().run(task);
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  stream.launch(task);
  stream.sync();
  EXPECT_NE(ran_on, std::this_thread::get_id());
  (void)stream.ref().run(task);  // idle again, with a thread now
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST(HostStream, thread_starts_with_the_first_task_that_needs_it) {
  const int before = threads_of_this_process();
  Stream stream = host_device(0).stream();
  Event event(host_device(0));
  int from = 4;
  int to = 0;
  (void)stream.ref().run([] { return Status::success(); });
  stream.record(event);
  event.sync();
  stream.wait(event);
  stream.ref().copy(&to, &from, sizeof(int));
  stream.sync();
  EXPECT_EQ(to, 4);
  EXPECT_EQ(threads_of_this_process(), before);
  stream.launch([] { return Status::success(); });
  EXPECT_EQ(threads_of_this_process(), before + 1);
}

TEST(HostStream, waiting_streams_use_no_processor_time) {
  Stream producer = host_device(0).stream();
  Stream consumer = host_device(0).stream();
  Event event(host_device(0));
  Gate gate;
  producer.launch(hold(gate));
  producer.record(event);
  consumer.wait(event);
  auto used = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return std::chrono::seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           std::chrono::microseconds(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  const auto before = used();
  // The time itself is the subject: what two blocked streams burn in it.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(used() - before, std::chrono::milliseconds(50));
  gate.open();
  consumer.sync();
}

TEST(HostStream, calls_that_would_wait_for_themselves_are_refused) {
  Stream stream = host_device(0).stream();
  std::vector<ErrorCode> codes;
  auto task = [&] {
    codes.push_back(code_of([&] { stream.sync(); }));
    codes.push_back(code_of([&] { (void)stream.ref().run([] { return Status::success(); }); }));
    return Status::success();
  };
  (void)stream.ref().run(task);
  stream.launch(task);
  stream.sync();
  EXPECT_EQ(codes, std::vector<ErrorCode>(4, ErrorCode::invalid_usage));
}

TEST(HostStream, task_may_enqueue_more_on_its_own_stream) {
  Stream stream = host_device(0).stream();
  std::atomic<int> done = 0;
  stream.launch([&] {
    stream.launch(count(done));
    return Status::success();
  });
  (void)stream.ref().run([&] {
    stream.launch(count(done));
    return Status::success();
  });
  stream.sync();  // the first task has run: its own work is enqueued before this
  EXPECT_EQ(done, 2);
}

TEST(HostStream, task_may_hold_the_last_owner_of_its_stream) {
  auto stream = std::make_shared<Stream>(host_device(0));
  Event event(host_device(0));
  Gate gate;
  std::weak_ptr<Stream> watch = stream;
  stream->launch([stream, &gate] { return gate.wait() ? Status::success() : Status{ErrorCode::timed_out}; });
  stream->record(event);
  stream.reset();
  gate.open();
  event.sync();
  EXPECT_TRUE(watch.expired());
}

TEST(HostStream, branches_of_a_graph_run_at_once) {
  Stream stream = host_device(0).stream();
  Stream side = host_device(0).stream();
  Event fork(host_device(0));
  Event join(host_device(0));
  Gate left;
  Gate right;
  stream.begin_capture();
  stream.record(fork);
  side.wait(fork);
  // Each waits for the other: done only if both run.
  side.launch([&] {
    left.open();
    return right.wait() ? Status::success() : Status{ErrorCode::timed_out};
  });
  stream.launch([&] {
    right.open();
    return left.wait() ? Status::success() : Status{ErrorCode::timed_out};
  });
  side.record(join);
  stream.wait(join);
  Graph graph = stream.end_capture();
  graph.launch(stream);
  stream.sync();
}

TEST(HostStream, threads_of_streams_take_no_signals) {
  Stream stream = host_device(0).stream();
  sigset_t mask;
  sigemptyset(&mask);
  stream.launch([&] {
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    return Status::success();
  });
  stream.sync();
  EXPECT_EQ(sigismember(&mask, SIGINT), 1);
  EXPECT_EQ(sigismember(&mask, SIGUSR1), 1);
}

// Runs `body` in a forked child and gives its exit code, 1 if it throws.
int exit_code_of_child(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    bool right = false;
    try {
      right = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
    }
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(HostStream, forked_child_may_drop_the_parents_streams_but_not_use_them) {
  Gate gate;
  auto stream = std::make_unique<Stream>(host_device(0));
  Stream side(host_device(0));
  Event fork_event(host_device(0));
  Event join(host_device(0));
  stream->begin_capture();
  stream->record(fork_event);
  side.wait(fork_event);
  side.record(join);
  stream->wait(join);
  auto graph = std::make_unique<Graph>(stream->end_capture());
  stream->launch(hold(gate));  // a thread that the child will not have
  EXPECT_EQ(exit_code_of_child([&] {
              const bool refused = code_of([&] { stream->launch([] { return Status::success(); }); }) ==
                                       ErrorCode::invalid_usage &&
                                   code_of([&] { stream->sync(); }) == ErrorCode::invalid_usage;
              stream.reset();
              graph.reset();
              return refused;
            }),
            0);
  gate.open();
  stream->sync();
}

TEST(HostStream, forked_child_uses_streams_that_had_no_thread) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer allows no thread in the child of a process with threads";
#endif
  Stream stream(host_device(0));
  (void)stream.ref().run([] { return Status::success(); });
  EXPECT_EQ(exit_code_of_child([&] {
              std::atomic<int> done = 0;
              stream.launch(count(done));
              stream.sync();
              Stream own(host_device(0));
              own.launch(count(done));
              own.sync();
              return done == 2;
            }),
            0);
  std::atomic<int> done = 0;
  stream.launch(count(done));
  stream.sync();
  EXPECT_EQ(done, 1);
}

TEST(HostDevice, info_tells_processor_and_memory) {
  const DeviceInfo& info = host_device(1).info();
  EXPECT_EQ(info.index, 1);
  EXPECT_NE(info.name.find("processors "), std::string::npos) << info.name;
  EXPECT_NE(info.uuid.find("host-"), std::string::npos) << info.uuid;
  const auto physical = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                        static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  EXPECT_LE(info.memory_bytes, physical);
}

TEST(HostDevice, default_stream_cannot_be_destroyed) {
  Device& device = host_device(0);
  const std::uintptr_t handle = device.default_stream().get();
  device.destroy_stream(handle);
  std::atomic<int> done = 0;
  device.default_stream().launch(count(done));
  device.default_stream().sync();
  EXPECT_EQ(done, 1);
}

}  // namespace
}  // namespace tugline::device

// SPDX-License-Identifier: Apache-2.0
// Threads of one rank that drive a communicator each: whoever comes first on one rank need not come first on
// another, so none may hold up the others.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "local_job.h"

namespace tugline::comm::test {
namespace {

TEST(ThreadsTest, BlockingCallsOfSeveralCommunicatorsDoNotWaitForEachOther) {
  constexpr int kThreads = 3;
  constexpr int kCalls = 200;
  run_ranks(2, [](Communicator& world, int rank) {
    std::vector<Communicator> communicators;
    for (int i = 0; i < kThreads; ++i) communicators.push_back(world.split(0, rank));
    std::vector<std::thread> threads;
    std::vector<int> wrong(kThreads);
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        for (int call = 0; call < kCalls; ++call) {
          int value = rank + call;
          communicators[static_cast<std::size_t>(i)].all_reduce(std::span(&value, 1), ReduceOp::sum);
          wrong[static_cast<std::size_t>(i)] += value != 2 * call + 1 ? 1 : 0;
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(wrong, std::vector<int>(kThreads));
  });
}

// One rank alone shows the order: the call comes behind what is on the device's default stream.
TEST(ThreadsTest, BlockingCallRunsBehindTheDefaultStream) {
  run_ranks(2, [](Communicator& world, int rank) {
    Device& device = world.state().device();
    int value = 0;
    std::atomic<bool> go{false};
    device.default_stream().launch([&]() -> Status {
      go.wait(false);
      value = rank + 1;
      return {};
    });
    std::thread later([&] {
      go = true;
      go.notify_all();
    });
    world.all_reduce(std::span(&value, 1), ReduceOp::sum);
    later.join();
    EXPECT_EQ(value, 3);
  });
}

}  // namespace
}  // namespace tugline::comm::test

// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of several processes: an address means something in one of them only.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "../broker/process_server.h"
#include "base/fork.h"
#include "comm/state.h"
#include "device/registry.h"
#include "memory/allocation.h"

namespace tugline::comm::test {
namespace {

using broker::testing::Child;
using broker::testing::ProcessServer;

constexpr std::size_t kCount = 20'000;
constexpr int kThreads = 2;
constexpr int kRanks = 2 * kThreads;

struct Rank {
  std::shared_ptr<broker::Client> client;
  std::shared_ptr<CommunicatorState> state;
  Communicator comm;
  int rank;
};

class DirectProcesses : public ::testing::Test {
 protected:
#if defined(__SANITIZE_THREAD__)
  void SetUp() override {
    GTEST_SKIP() << "ThreadSanitizer does not support children of a process with threads that start threads";
  }
#endif

  /// Two processes of two threads each; `body` says whether all is right.
  void run(const std::function<bool(Rank&)>& body) {
    std::vector<std::unique_ptr<Child>> processes;
    for (int first : {0, kThreads})
      processes.push_back(std::make_unique<Child>([this, first, &body] {
        const auto devices = device::host_devices(kThreads);
        std::atomic<int> right{0};
        std::vector<std::thread> threads;
        for (int thread = 0; thread < kThreads; ++thread)
          threads.emplace_back([&, thread] {
            try {
              auto client = server_.join(first + thread, kRanks);
              CommunicatorState::Identity identity;
              identity.name = "world";
              identity.rank = static_cast<std::uint32_t>(first + thread);
              identity.size = kRanks;
              auto state =
                  CommunicatorState::create(client, *devices[static_cast<std::size_t>(thread)], identity);
              Rank self{client, state, Communicator(state), first + thread};
              self.comm.barrier();
              if (body(self)) ++right;
              self.comm.barrier();
            } catch (const std::exception& error) {
              std::fprintf(stderr, "rank %d: %s\n", first + thread, error.what());
            }
          });
        for (auto& thread : threads) thread.join();
        return right == kThreads ? 0 : 1;
      }));
    for (auto& process : processes) EXPECT_EQ(process->wait(), 0);
  }

  // No threads in the process that forks: a child would find what they had locked locked for ever.
  ProcessServer server_;
};

bool sums(Rank& self, std::int32_t* data) {
  for (std::size_t i = 0; i < kCount; ++i) data[i] = self.rank + static_cast<std::int32_t>(i);
  self.comm.all_reduce(data, data, kCount, DataType::i32, ReduceOp::sum);
  bool right = true;
  for (std::size_t i = 0; i < kCount; ++i)
    right = right && data[i] == 0 + 1 + 2 + 3 + kRanks * static_cast<std::int32_t>(i);
  return right;
}

// Made before the fork: the same addresses in both, and what was known of this process.
TEST_F(DirectProcesses, PrivateMemoryAtEqualAddressesGoesThroughScratch) {
  (void)base::process_identity();
  std::vector<std::vector<std::int32_t>> memory(kThreads, std::vector<std::int32_t>(kCount));
  run([&](Rank& self) {
    auto& own = memory[static_cast<std::size_t>(self.rank % kThreads)];
    bool right = true;
    for (int round = 0; round < 5; ++round) right = right && sums(self, own.data());
    return right && self.state->direct_operations() == 0;
  });
}

TEST_F(DirectProcesses, LibraryMemoryIsReachedBySegment) {
  run([](Rank& self) {
    const auto memory = memory::allocate(self.client, kCount * sizeof(std::int32_t));
    bool right = true;
    for (int round = 0; round < 5; ++round)
      right = right && sums(self, static_cast<std::int32_t*>(memory->data()));
    return right && self.state->direct_operations() == 5;
  });
}

TEST_F(DirectProcesses, OnePrivateBufferAmongLibraryOnesIsNotReached) {
  run([](Rank& self) {
    const auto memory = memory::allocate(self.client, kCount * sizeof(std::int32_t));
    std::vector<std::int32_t> own(kCount);
    bool right = true;
    for (int round = 0; round < kRanks; ++round)
      right =
          right && sums(self, self.rank == round ? own.data() : static_cast<std::int32_t*>(memory->data()));
    return right && self.state->direct_operations() == 0;
  });
}

TEST_F(DirectProcesses, APartThatIsOneProcessReachesItsMemory) {
  run([](Rank& self) {
    auto part = self.state->split(self.rank / kThreads, self.rank);
    Communicator comm(part);
    comm.barrier();
    std::vector<std::int32_t> own(kCount, self.rank);
    comm.all_reduce(std::span(own), ReduceOp::sum);
    return own[kCount - 1] == (self.rank < kThreads ? 1 : 5) && part->direct_operations() == 1;
  });
}

}  // namespace
}  // namespace tugline::comm::test

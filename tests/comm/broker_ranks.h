// SPDX-License-Identifier: Apache-2.0
// Ranks as threads that are members of their own of the real broker, with memory that others can reach.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "../broker/support.h"
#include "comm/state.h"
#include "device/registry.h"
#include "memory/allocation.h"
#include "memory/registration.h"
#include "tugline/communicator.h"

namespace tugline::comm::test {

enum class Kind { library, registered, private_memory };
/// What ranks take each other for. Processes reach segments, threads all memory.
enum class Ranks { processes, threads };

struct Freed {
  void operator()(void* memory) const { std::free(memory); }
};

struct Rank {
  std::shared_ptr<broker::Client> client;
  std::shared_ptr<CommunicatorState> state;
  Communicator comm;
  int rank;

  /// `offset` elements into memory of the kind.
  template <class T>
  std::span<T> allocate(std::size_t count, std::size_t offset = 0, Kind kind = Kind::library) {
    constexpr std::size_t kPage = 4096;
    const auto bytes = ((count + offset) * sizeof(T) / kPage + 1) * kPage;
    void* begin = nullptr;
    if (kind == Kind::library) {
      kept.push_back(memory::allocate(client, bytes));
      begin = kept.back()->data();
    } else {
      own.emplace_back(begin = std::aligned_alloc(kPage, bytes));
      if (kind == Kind::registered) registered.push_back(memory::register_memory(client, begin, bytes));
    }
    return {static_cast<T*>(begin) + offset, count};
  }
  std::vector<std::shared_ptr<memory::SharedAllocation>> kept;
  std::vector<std::unique_ptr<void, Freed>> own;
  std::vector<std::unique_ptr<memory::Registration>> registered;
};

inline void run(int ranks, const std::function<void(Rank&)>& body, Ranks are = Ranks::processes) {
  broker::testing::ThreadedServer server;
  const auto devices = device::host_devices(ranks);
  std::mutex mutex;
  std::string problem;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        auto client = server.join(rank, ranks);
        CommunicatorState::Identity identity;
        identity.name = "world";
        identity.rank = static_cast<std::uint32_t>(rank);
        identity.size = static_cast<std::uint32_t>(ranks);
        if (are == Ranks::processes) identity.process = identity.rank + 1;
        auto state = CommunicatorState::create(client, *devices[static_cast<std::size_t>(rank)], identity);
        Rank self{client, state, Communicator(state), rank, {}, {}, {}};
        body(self);
        self.comm.barrier();
      } catch (const std::exception& error) {
        std::lock_guard lock(mutex);
        problem += "rank " + std::to_string(rank) + ": " + error.what() + "\n";
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(problem, "");
}

}  // namespace tugline::comm::test

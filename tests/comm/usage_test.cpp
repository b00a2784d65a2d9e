// SPDX-License-Identifier: Apache-2.0
// Streams, graphs, groups, splits: the ways in which calls are made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "device/registry.h"
#include "elements.h"
#include "local_job.h"
#include "tugline/buffer.h"

namespace tugline::comm::test {
namespace {

using ::testing::HasSubstr;

Device& device_of(Communicator& comm) {
  return comm.state().device();
}

TEST(Streams, OperationsRunInOrderBesideTheHost) {
  run_ranks(3, [&](Communicator& comm, int rank) {
    Stream stream = device_of(comm).stream();
    std::vector<float> a(1000, static_cast<float>(rank)), b(70000, 1.0f);
    comm.all_reduce(std::span<float>(a), ReduceOp::sum, stream);
    comm.all_reduce(std::span<float>(b), ReduceOp::sum, stream);
    comm.broadcast(std::span<float>(a), 1, stream);
    comm.barrier(stream);
    stream.sync();
    EXPECT_EQ(a[999], 3.0f);
    EXPECT_EQ(b[69999], 3.0f);
  });
}

TEST(Graphs, ReplayWithTheSameArguments) {
  run_ranks(2, [&](Communicator& comm, int rank) {
    Stream stream = device_of(comm).stream();
    std::vector<float> values(100, static_cast<float>(rank + 1));
    stream.begin_capture();
    comm.all_reduce(std::span<float>(values), ReduceOp::sum, stream);
    Graph graph = stream.end_capture();
    EXPECT_EQ(values[0], static_cast<float>(rank + 1)) << "capture does not run";
    for (int replay = 0; replay < 5; ++replay) graph.launch(stream);
    stream.sync();
    EXPECT_EQ(values[99], 3.0f * 16);  // 3, then doubled four times
  });
}

TEST(Streams, AFailureIsTheStreamsErrorUntilAgreeSettlesIt) {
  LocalJob job(2);
  run_ranks(job, [&](Communicator& comm, int rank) {
    if (rank == 1) {
      job.kill(1);
      return;
    }
    Stream stream = device_of(comm).stream();
    std::vector<float> values(100);
    comm.all_reduce(std::span<float>(values), ReduceOp::sum, stream);
    try {
      stream.sync();
      ADD_FAILURE() << "the stream hides the loss";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("rank 1"));
    }
    comm.all_reduce(std::span<float>(values), ReduceOp::sum, stream);
    EXPECT_TRUE(comm.agree(stream).membership_changed());
    comm.all_reduce(std::span<float>(values), ReduceOp::sum, stream);
    stream.sync();
  });
}

TEST(Graphs, OfAnEndedEpochAreStale) {
  LocalJob job(2);
  run_ranks(job, [&](Communicator& comm, int rank) {
    Stream stream = device_of(comm).stream();
    std::vector<float> values(100, 1.0f);
    stream.begin_capture();
    comm.all_reduce(std::span<float>(values), ReduceOp::sum, stream);
    Graph graph = stream.end_capture();
    if (rank == 1) {
      job.kill(1);
      return;
    }
    EXPECT_TRUE(comm.agree().membership_changed());
    graph.launch(stream);
    try {
      stream.sync();
      ADD_FAILURE() << "the graph belongs to the old epoch";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::stale_epoch) << error.what();
    }
  });
}

TEST(Groups, OneThreadDrivesSeveralRanks) {
  constexpr int kRanks = 3;
  LocalJob job(kRanks);
  std::vector<Communicator> comms;
  const auto devices = device::host_devices(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    CommunicatorState::Identity identity;
    identity.name = "world";
    identity.rank = static_cast<std::uint32_t>(rank);
    identity.size = kRanks;
    comms.emplace_back(
        CommunicatorState::create(job.client(rank), *devices[static_cast<std::size_t>(rank)], identity));
  }
  for (std::size_t count : {std::size_t{4}, std::size_t{200000}}) {
    std::vector<std::vector<float>> values;
    for (int rank = 0; rank < kRanks; ++rank) values.emplace_back(count, static_cast<float>(rank));
    Group group;
    for (int rank = 0; rank < kRanks; ++rank)
      comms[static_cast<std::size_t>(rank)].all_reduce(
          std::span<float>(values[static_cast<std::size_t>(rank)]), ReduceOp::sum, group);
    EXPECT_EQ(group.size(), 3u);
    group.run();
    EXPECT_EQ(group.size(), 0u);
    for (const auto& result : values) EXPECT_EQ(result[count - 1], 3.0f);
  }
}

TEST(Groups, SeveralCollectivesAndMessagesAtOnce) {
  run_ranks(4, [&](Communicator& comm, int rank) {
    Communicator pair = comm.split(rank / 2, rank);
    std::vector<float> a(1000, 1.0f), b(1000, 2.0f), c(50000, 3.0f);
    std::vector<std::int32_t> from(4 * 5000), to(4 * 5000, rank);
    Group group;
    comm.all_reduce(std::span<float>(a), ReduceOp::sum, group);
    pair.all_reduce(std::span<float>(b), ReduceOp::sum, group);
    comm.all_reduce(std::span<float>(c), ReduceOp::sum, group);
    for (int peer = 0; peer < 4; ++peer) {
      comm.recv(from.data() + peer * 5000, 5000, DataType::i32, peer, group);
      comm.send(to.data() + peer * 5000, 5000, DataType::i32, peer, group);
    }
    group.run();
    EXPECT_EQ(a[999], 4.0f);
    EXPECT_EQ(b[999], 4.0f);
    EXPECT_EQ(c[49999], 12.0f);
    for (int peer = 0; peer < 4; ++peer) EXPECT_EQ(from[static_cast<std::size_t>(peer * 5000 + 4999)], peer);
  });
}

TEST(Groups, AMessageToOneselfNeedsItsPartner) {
  run_ranks(1, [&](Communicator& comm, int) {
    float value = 1.0f;
    auto where = [](auto call) {
      try {
        call();
      } catch (const Error& error) {
        const auto& at = error.context();
        return at.operation + " at rank " + std::to_string(at.rank) + " of " + at.communicator + " to " +
               std::to_string(at.peer);
      }
      return std::string("no error");
    };
    const std::string wanted = "(count 1, f32) at rank 0 of world to 0";
    EXPECT_EQ(where([&] { comm.send(&value, 1, DataType::f32, 0); }), "send" + wanted);
    EXPECT_EQ(where([&] { comm.recv(&value, 1, DataType::f32, 0); }), "recv" + wanted);
    Group group;
    comm.send(&value, 1, DataType::f32, 0, group);
    EXPECT_EQ(where([&] { group.run(); }), "send" + wanted);
    float got = 0.0f;
    comm.send(&value, 1, DataType::f32, 0, group);
    comm.recv(&got, 1, DataType::f32, 0, group);
    group.run();
    EXPECT_EQ(got, 1.0f);
  });
}

TEST(Usage, TakesAnythingWithContiguousElements) {
  run_ranks(2, [](Communicator& comm, int) {
    std::vector<float> vector(20, 1.0f);
    std::array<std::int32_t, 3> array{1, 2, 3};
    double plain[2] = {0.5, 1.5};
    comm.all_reduce(vector, ReduceOp::sum);
    comm.all_reduce(array, ReduceOp::prod);
    comm.all_reduce(plain, ReduceOp::max);
    comm.broadcast(std::span<float>(vector).first(4), 1);
    EXPECT_EQ(vector[19], 2.0f);
    EXPECT_EQ(array[2], 9);
    EXPECT_EQ(plain[1], 1.5);
    static_assert(!ElementRange<const std::vector<float>>, "results need room");
    static_assert(ElementRange<Buffer<float>>);
  });
}

TEST(Usage, ASecondOperationAtOnceIsRefused) {
  std::atomic<bool> refused{false};
  run_ranks(2, [&](Communicator& comm, int rank) {
    // Rank 0 is in operation 1 once its descriptor is published; it stays there until rank 1 comes.
    const auto epoch = comm.state().current();
    auto in_first_operation = [&] {
      return epoch->bank.descriptor(0, 1).sequence.load(std::memory_order_acquire) == 1;
    };
    if (rank == 1) {
      while (!refused.load()) std::this_thread::yield();
      comm.barrier();
      return;
    }
    Stream stream = device_of(comm).stream();
    comm.barrier(stream);
    while (!in_first_operation()) std::this_thread::yield();
    try {
      comm.barrier();
      ADD_FAILURE() << "two operations at once";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_usage) << error.what();
    }
    refused.store(true);
    stream.sync();
  });
}

TEST(Split, ColorsKeysAndNobody) {
  run_ranks(5, [&](Communicator& comm, int rank) {
    Communicator part = comm.split(rank == 4 ? -1 : rank % 2, -rank);
    if (rank == 4) {
      EXPECT_FALSE(part.valid());
    } else {
      EXPECT_EQ(part.size(), 2);
      EXPECT_EQ(part.rank(), rank >= 2 ? 0 : 1) << "ordered by falling rank";
      std::int32_t sum = rank;
      part.all_reduce(&sum, &sum, 1, DataType::i32, ReduceOp::sum);
      EXPECT_EQ(sum, rank % 2 == 0 ? 2 : 4);
      Communicator single = part.split(part.rank(), 0);
      EXPECT_EQ(single.size(), 1);
    }
    comm.barrier();
  });
}

}  // namespace
}  // namespace tugline::comm::test

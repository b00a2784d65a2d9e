// SPDX-License-Identifier: Apache-2.0
// Operations that go on beside their caller.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "elements.h"
#include "local_job.h"

namespace tugline::comm::test {
namespace {

using ::testing::HasSubstr;

std::ptrdiff_t threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

TEST(Requests, EveryCollectiveRunsBesideTheCaller) {
  run_ranks(3, [](Communicator& comm, int rank) {
    for (std::size_t count : {std::size_t{1}, std::size_t{7}, std::size_t{30001}}) {
      Elements a(DataType::f32, count, rank, 1), sum(DataType::f32, count);
      Elements b(DataType::i32, count, rank, 2), all(DataType::i32, 3 * count);
      Elements c(DataType::u8, count, rank, 3);
      Request first, second, third, fourth;
      comm.all_reduce(a.data(), sum.data(), count, DataType::f32, ReduceOp::sum, first);
      comm.all_gather(b.data(), all.data(), count, DataType::i32, second);
      comm.broadcast(c.data(), c.data(), count, DataType::u8, 1, third);
      comm.barrier(fourth);
      fourth.wait();
      EXPECT_TRUE(first.is_done() && second.is_done() && third.is_done()) << "in order";
      first.wait();
      second.wait();
      third.wait();
      EXPECT_FALSE(first.valid());
      EXPECT_EQ(sum, reduced(DataType::f32, count, ReduceOp::sum, 3, 1));
      EXPECT_EQ(all.part(2 * count, count), Elements(DataType::i32, count, 2, 2));
      EXPECT_EQ(c, Elements(DataType::u8, count, 1, 3));
    }
  });
}

TEST(Requests, GoOnWithoutTheCallerAndInOrder) {
  // Rank 0 begins and then only looks; rank 1 comes by blocking calls.
  run_ranks(2, [](Communicator& comm, int rank) {
    constexpr int kOperations = 20;
    std::vector<std::vector<float>> values(kOperations, std::vector<float>(5000, 1.0f));
    if (rank == 1) {
      for (auto& value : values) comm.all_reduce(value, ReduceOp::sum);
    } else {
      std::vector<Request> requests(kOperations);
      for (int i = 0; i < kOperations; ++i)
        comm.all_reduce(values[static_cast<std::size_t>(i)], ReduceOp::sum,
                        requests[static_cast<std::size_t>(i)]);
      while (!requests.back().is_done()) std::this_thread::yield();
      for (auto& request : requests) {
        EXPECT_TRUE(request.is_done());
        request.wait();
      }
    }
    for (const auto& value : values) EXPECT_EQ(value[4999], 2.0f);
  });
}

TEST(Requests, NeedNoThreadEach) {
  run_ranks(1, [](Communicator& comm, int) {
    std::vector<float> values(10, 1.0f);
    Request warm;
    comm.all_reduce(values, ReduceOp::sum, warm);
    warm.wait();
    const auto before = threads();
    std::vector<Request> requests(200);
    for (auto& request : requests) comm.all_reduce(values, ReduceOp::sum, request);
    EXPECT_LE(threads(), before + 1);
    for (auto& request : requests) request.wait();
    EXPECT_LE(threads(), before + 1);
  });
}

TEST(Requests, WhatComesLaterRunsBehindThem) {
  run_ranks(2, [](Communicator& comm, int rank) {
    for (int round = 0; round < 30; ++round) {
      std::vector<float> a(20000, 1.0f), b(20000, 1.0f);
      Request request;
      comm.all_reduce(a, ReduceOp::sum, request);
      comm.all_reduce(a, ReduceOp::sum);  // blocking
      EXPECT_EQ(a[19999], 4.0f);
      comm.all_reduce(b, ReduceOp::sum, request);
      Stream stream = comm.state().device().stream();
      comm.all_reduce(b, ReduceOp::sum, stream);
      stream.sync();
      EXPECT_EQ(b[19999], 4.0f);
      request.wait();
      float other = 0, mine = static_cast<float>(rank);
      Group group;
      comm.send(&mine, 1, DataType::f32, 1 - rank, group);
      comm.recv(&other, 1, DataType::f32, 1 - rank, group);
      comm.barrier(request);
      group.run();
      EXPECT_EQ(other, static_cast<float>(1 - rank));
      EXPECT_EQ(comm.split(0, rank).size(), 2);
    }
    EXPECT_TRUE(comm.agree().committed());
  });
}

TEST(Requests, AGroupSendsAndReceivesAtOnce) {
  run_ranks(3, [](Communicator& comm, int rank) {
    std::vector<std::int32_t> out(70000, rank), in(70000);
    Group group;
    comm.recv(in.data(), in.size(), DataType::i32, (rank + 2) % 3, group);
    comm.send(out.data(), out.size(), DataType::i32, (rank + 1) % 3, group);
    Request request;
    group.run(request);
    EXPECT_EQ(group.size(), 0u);
    request.wait();
    EXPECT_EQ(in[69999], (rank + 2) % 3);
    Communicator other = comm.split(0, rank);
    comm.barrier(group);
    other.barrier(group);
    EXPECT_THROW(group.run(request), Error);
  });
}

TEST(Requests, TheirErrorsAreTheirOwnAndTheCommunicators) {
  LocalJob job(2);
  run_ranks(job, [&](Communicator& comm, int rank) {
    if (rank == 1) {
      job.kill(1);
      return;
    }
    std::vector<float> values(100, 1.0f);
    Request first, second, unheard;
    comm.all_reduce(values, ReduceOp::sum, first);
    comm.all_reduce(values, ReduceOp::sum, second);
    comm.all_reduce(values, ReduceOp::sum, unheard);
    for (auto* request : {&first, &second}) {
      try {
        request->wait();
        ADD_FAILURE() << "the request hides the loss";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
      }
      EXPECT_FALSE(request->valid());
    }
    EXPECT_TRUE(comm.agree().membership_changed());
    EXPECT_TRUE(unheard.is_done());
    comm.all_reduce(values, ReduceOp::sum, first);
    first.wait();
  });
}

TEST(Requests, AMismatchIsThrownByWait) {
  run_ranks(2, [](Communicator& comm, int rank) {
    std::vector<float> values(rank == 0 ? 10 : 11, 1.0f);
    Request request;
    comm.all_reduce(values, ReduceOp::sum, request);
    try {
      request.wait();
      ADD_FAILURE() << "no mismatch";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("count 11"));
    }
  });
}

TEST(Requests, OneThatRunsTakesNoOtherOperation) {
  std::atomic<bool> refused{false};
  run_ranks(2, [&](Communicator& comm, int rank) {
    if (rank == 1) {
      while (!refused.load()) std::this_thread::yield();
      comm.barrier();
      return;
    }
    Request request;
    comm.barrier(request);
    EXPECT_FALSE(request.is_done());
    try {
      comm.barrier(request);
      ADD_FAILURE() << "two operations of one request";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_usage);
    }
    Request moved = std::move(request);
    EXPECT_TRUE(request.is_done() && !request.valid());
    refused.store(true);
    moved.wait();
  });
}

TEST(Requests, TheirDestructorWaitsAndTheyOutliveTheCommunicator) {
  for (int round = 0; round < 20; ++round) {
    LocalJob job(2);
    std::vector<float> values[2] = {std::vector<float>(30000, 1.0f), std::vector<float>(30000, 1.0f)};
    run_ranks(job, [&](Communicator& comm, int rank) {
      Request request;
      comm.all_reduce(values[rank], ReduceOp::sum, request);
      // The caller's handle goes first; the request's is the last one.
      Communicator dropped = std::move(comm);
    });
    for (const auto& value : values) EXPECT_EQ(value[29999], 2.0f);
  }
}

}  // namespace
}  // namespace tugline::comm::test

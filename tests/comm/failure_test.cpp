// SPDX-License-Identifier: Apache-2.0
// What goes wrong, and what everybody is told: different calls, abort, death, agreement.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <fstream>
#include <future>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "device/registry.h"
#include "elements.h"
#include "local_job.h"

namespace tugline::comm::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Runs `body` on each rank, requires an Error of `code` on all of them, and gives the texts.
std::vector<std::string> errors_of_all(int ranks, ErrorCode code,
                                       const std::function<void(Communicator&, int)>& body) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](Communicator& comm, int rank) {
    try {
      body(comm, rank);
      ADD_FAILURE() << "rank " << rank << " got no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      texts[static_cast<std::size_t>(rank)] = error.what();
    }
  });
  return texts;
}

TEST(Mismatch, CountNamesBothRanksAndBothValues) {
  for (std::size_t small : {std::size_t{4}, std::size_t{50000}}) {
    const auto texts = errors_of_all(3, ErrorCode::mismatch, [&](Communicator& comm, int rank) {
      const std::size_t count = rank == 1 ? small + 1 : small;
      std::vector<float> values(count, 1.0f);
      comm.all_reduce(std::span<float>(values), ReduceOp::sum);
      comm.barrier();
    });
    for (const auto& text : texts)
      EXPECT_THAT(text, AllOf(HasSubstr("rank 1 called all_reduce(count " + std::to_string(small + 1) +
                                        ", f32, sum)"),
                              HasSubstr("called all_reduce(count " + std::to_string(small) + ", f32, sum)")));
  }
}

TEST(Mismatch, CollectiveTypeOperatorRootAndOrder) {
  std::vector<std::byte> a(4096), b(4096 * 2);
  auto expect = [&](const std::string& one, const std::string& other, auto first, auto second) {
    const auto texts = errors_of_all(2, ErrorCode::mismatch, [&](Communicator& comm, int rank) {
      std::vector<std::byte> send(1 << 16), recv(1 << 17);
      if (rank == 0)
        first(comm, send.data(), recv.data());
      else
        second(comm, send.data(), recv.data());
      comm.barrier();
      comm.barrier();
    });
    for (const auto& text : texts) EXPECT_THAT(text, AllOf(HasSubstr(one), HasSubstr(other)));
  };
  using C = Communicator;
  expect(
      "rank 0 called all_reduce(count 9, f32, sum)", "rank 1 called all_reduce(count 9, i32, sum)",
      [](C& c, void* s, void* r) { c.all_reduce(s, r, 9, DataType::f32, ReduceOp::sum); },
      [](C& c, void* s, void* r) { c.all_reduce(s, r, 9, DataType::i32, ReduceOp::sum); });
  expect(
      "rank 0 called all_reduce(count 9000, f32, max)", "rank 1 called all_reduce(count 9000, f32, sum)",
      [](C& c, void* s, void* r) { c.all_reduce(s, r, 9000, DataType::f32, ReduceOp::max); },
      [](C& c, void* s, void* r) { c.all_reduce(s, r, 9000, DataType::f32, ReduceOp::sum); });
  expect(
      "rank 0 called broadcast(count 9, f32, root 0)", "rank 1 called broadcast(count 9, f32, root 1)",
      [](C& c, void* s, void* r) { c.broadcast(s, r, 9, DataType::f32, 0); },
      [](C& c, void* s, void* r) { c.broadcast(s, r, 9, DataType::f32, 1); });
  expect(
      "rank 0 called reduce(count 9, f32, max, root 0)", "rank 1 called reduce(count 9, f32, max, root 1)",
      [](C& c, void* s, void* r) { c.reduce(s, r, 9, DataType::f32, ReduceOp::max, 0); },
      [](C& c, void* s, void* r) { c.reduce(s, r, 9, DataType::f32, ReduceOp::max, 1); });
  expect(
      "rank 0 called gather(count 900, f32, root 0)", "rank 1 called gather(count 901, f32, root 0)",
      [](C& c, void* s, void* r) { c.gather(s, r, 900, DataType::f32, 0); },
      [](C& c, void* s, void*) { c.gather(s, nullptr, 901, DataType::f32, 0); });
  expect(
      "rank 0 called scatter(count 9, f32, root 1)", "rank 1 called gather(count 9, f32, root 1)",
      [](C& c, void*, void* r) { c.scatter(nullptr, r, 9, DataType::f32, 1); },
      [](C& c, void* s, void* r) { c.gather(s, r, 9, DataType::f32, 1); });
  expect(
      "rank 0 called all_gather(count 100, f64)", "rank 1 called all_to_all(count 100, f64)",
      [](C& c, void* s, void* r) { c.all_gather(s, r, 100, DataType::f64); },
      [](C& c, void* s, void* r) { c.all_to_all(s, r, 100, DataType::f64); });
  expect(
      "rank 0 called barrier()", "rank 1 called all_reduce(count 5, f32, sum)",
      [](C& c, void* s, void* r) {
        c.barrier();
        c.all_reduce(s, r, 5, DataType::f32, ReduceOp::sum);
      },
      [](C& c, void* s, void* r) {
        c.all_reduce(s, r, 5, DataType::f32, ReduceOp::sum);
        c.barrier();
      });
}

TEST(Mismatch, MessagesOfDifferentCount) {
  const auto texts = errors_of_all(2, ErrorCode::mismatch, [&](Communicator& comm, int rank) {
    std::vector<float> values(100000);
    if (rank == 0)
      comm.send(values.data(), 70000, DataType::f32, 1);
    else
      comm.recv(values.data(), 80000, DataType::f32, 0);
    comm.barrier();
  });
  for (const auto& text : texts)
    EXPECT_THAT(text,
                AllOf(HasSubstr("rank 1 called recv(count 80000, f32), rank 0 called send(count 70000, f32)"),
                      Not(HasSubstr("send_recv"))));
}

TEST(Mismatch, AgreementPutsTheRanksInStepAgain) {
  run_ranks(2, [&](Communicator& comm, int rank) {
    std::vector<float> values(rank == 0 ? 10 : 20, 1.0f);
    EXPECT_THROW(comm.all_reduce(std::span<float>(values), ReduceOp::sum), Error);
    const Outcome outcome = comm.agree();
    EXPECT_FALSE(outcome.committed());
    EXPECT_FALSE(outcome.membership_changed());
    std::vector<float> again(10, 1.0f);
    comm.all_reduce(std::span<float>(again), ReduceOp::sum);
    EXPECT_EQ(again[9], 2.0f);
    EXPECT_TRUE(comm.agree().committed());
  });
}

TEST(Arguments, AreCheckedAndNamed) {
  run_ranks(2, [&](Communicator& comm, int) {
    std::vector<float> values(100);
    auto text_of = [&](auto call) -> std::string {
      try {
        call();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        return error.what();
      }
      return "no error";
    };
    float* data = values.data();
    EXPECT_THAT(text_of([&] { comm.broadcast(data, data, 1, DataType::f32, 2); }),
                HasSubstr("root 2 is outside 0..1"));
    const int self = comm.rank();
    EXPECT_THAT(text_of([&] { comm.reduce(data, nullptr, 1, DataType::f32, ReduceOp::sum, self); }),
                HasSubstr("recv is null with count 1"));
    EXPECT_THAT(text_of([&] { comm.reduce(nullptr, data, 1, DataType::f32, ReduceOp::sum, 1 - self); }),
                HasSubstr("send is null with count 1"));
    EXPECT_THAT(text_of([&] { comm.gather(data, data + 1, 10, DataType::f32, self); }), HasSubstr("overlap"));
    EXPECT_THAT(text_of([&] { comm.scatter(nullptr, data, 1, DataType::f32, self); }),
                HasSubstr("send is null with count 1"));
    EXPECT_THAT(text_of([&] { comm.gather(data, data, 1, DataType::f32, -1); }),
                HasSubstr("root -1 is outside 0..1"));
    EXPECT_THAT(text_of([&] { comm.send(data, 1, DataType::f32, -1); }),
                HasSubstr("peer -1 is outside 0..1"));
    EXPECT_THAT(text_of([&] { comm.all_reduce(nullptr, data, 1, DataType::f32, ReduceOp::sum); }),
                HasSubstr("send is null with count 1"));
    EXPECT_THAT(text_of([&] { comm.all_reduce(data, data + 1, 50, DataType::f32, ReduceOp::sum); }),
                HasSubstr("overlap"));
    EXPECT_THAT(text_of([&] {
                  comm.all_reduce(data, data, static_cast<std::size_t>(-3), DataType::f32, ReduceOp::sum);
                }),
                HasSubstr("negative count"));
    EXPECT_THAT(text_of([&] { comm.all_reduce(data, data, 1, static_cast<DataType>(77), ReduceOp::sum); }),
                HasSubstr("type 77"));
    comm.barrier();
  });
}

TEST(Abort, EndsAWaitOnAnotherThreadAndOnOtherRanks) {
  const auto texts = errors_of_all(3, ErrorCode::aborted, [&](Communicator& comm, int rank) {
    if (rank == 2) {
      // Never takes part: from another thread, as a watchdog would.
      std::thread([&] { comm.abort("the test says so"); }).join();
      comm.check();
    } else {
      comm.barrier();
    }
  });
  for (const auto& text : texts) EXPECT_THAT(text, HasSubstr("rank 2 called abort(): the test says so"));
}

TEST(Death, EveryWaiterIsToldWhoAndAgreesAndGoesOn) {
  for (std::size_t count : {std::size_t{2}, std::size_t{100000}}) {
    LocalJob job(4);
    std::mutex mutex;
    std::vector<std::string> texts;
    run_ranks(job, [&](Communicator& comm, int rank) {
      std::vector<float> values(count, 1.0f);
      comm.all_reduce(std::span<float>(values), ReduceOp::sum);
      EXPECT_TRUE(comm.agree().committed());
      if (rank == 1) {
        job.kill(1);
        return;
      }
      values.assign(count, 1.0f);
      try {
        comm.all_reduce(std::span<float>(values), ReduceOp::sum);
        ADD_FAILURE() << "rank 1 never took part";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
        EXPECT_EQ(error.context().peer, 1);
        EXPECT_THAT(error.what(), HasSubstr("rank 1 died (its lifeline was released by the kernel)"));
      }
      const Outcome outcome = comm.agree();
      EXPECT_FALSE(outcome.committed());
      EXPECT_TRUE(outcome.membership_changed());
      ASSERT_EQ(outcome.lost().size(), 1u);
      EXPECT_EQ(outcome.lost()[0].rank, 1);
      EXPECT_EQ(outcome.agreement(), 2u);
      EXPECT_EQ(comm.size(), 3);
      EXPECT_EQ(comm.rank(), rank == 0 ? 0 : rank - 1);
      values.assign(count, static_cast<float>(rank));
      comm.all_reduce(std::span<float>(values), ReduceOp::sum);
      EXPECT_EQ(values[count - 1], 5.0f);
      EXPECT_TRUE(comm.agree().committed());
    });
  }
}

TEST(Death, AfterAllSurvivorsCompletedTheStepCommits) {
  LocalJob job(3);
  std::barrier everybody_done(3);
  run_ranks(job, [&](Communicator& comm, int rank) {
    std::vector<float> values(10, 1.0f);
    comm.all_reduce(std::span<float>(values), ReduceOp::sum);
    if (rank == 2) {
      job.kill(2);
      everybody_done.arrive_and_wait();
      return;
    }
    everybody_done.arrive_and_wait();
    const Outcome outcome = comm.agree();
    // Whoever comes first sees the death while the other has not posted: aborted at once. Either way it is
    // one answer.
    EXPECT_TRUE(outcome.membership_changed());
    EXPECT_EQ(comm.size(), 2);
    std::int32_t committed = outcome.committed() ? 1 : 0;
    comm.all_reduce(&committed, &committed, 1, DataType::i32, ReduceOp::sum);
    EXPECT_TRUE(committed == 0 || committed == 2);
  });
}

// Each operation is the last one of whoever is through first: its good-bye must not end it for the others.
TEST(GoodBye, AfterTheLastOperationIsNoErrorToThoseStillInIt) {
  for (int round = 0; round < 20; ++round) {
    LocalJob job(4);
    run_ranks(job, [&](Communicator& comm, int rank) {
      std::vector<std::int32_t> all(4 * 30000), mine(30000, rank);
      if (round % 2 == 0) {
        comm.all_gather(mine.data(), all.data(), mine.size(), DataType::i32);
        EXPECT_EQ(all[119999], 3);
      } else {
        comm.broadcast(std::span<std::int32_t>(mine), 2);
        EXPECT_EQ(mine[29999], 2);
      }
      job.leave(rank);
    });
  }
}

// The bank goes with its last reference, so a sender must not be through before the receiver holds one.
TEST(NoRoom, ACommunicatorThatCannotBeMappedLeavesNothing) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need address space themselves";
#endif
  LocalJob job(1);
  const auto client = job.client(0);
  const auto devices = device::host_devices(1);
  CommunicatorState::Identity identity;
  identity.name = "world";
  identity.rank = 0;
  identity.size = 1;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  constexpr rlim_t kStep = 64 << 10;
  int refused = 0;
  // Ever more room, so that each of its mappings fails once.
  for (std::shared_ptr<CommunicatorState> state; !state;) {
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit tight{
        pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + kStep * static_cast<rlim_t>(refused),
        before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_AS, &tight), 0);
    std::optional<Error> error;
    try {
      state = CommunicatorState::create(client, *devices[0], identity);
    } catch (const Error& thrown) {
      error = thrown;
    } catch (const std::bad_alloc&) {
    }
    ::setrlimit(RLIMIT_AS, &before);
    if (state) break;
    ++refused;
    if (error) {
      EXPECT_EQ(error->code(), ErrorCode::out_of_memory) << error->what();
    }
    ASSERT_EQ(job.segments(), 0u) << "after " << refused << " refusals";
  }
  EXPECT_GT(refused, 2);
}

TEST(GoodBye, AMessageToARankThatComesLaterIsNotLost) {
  for (int round = 0; round < 10; ++round) {
    LocalJob job(2);
    const auto devices = device::host_devices(2);
    const auto join = [&](int rank) {
      CommunicatorState::Identity identity;
      identity.name = "world";
      identity.rank = static_cast<std::uint32_t>(rank);
      identity.size = 2;
      return CommunicatorState::create(job.client(rank), *devices[static_cast<std::size_t>(rank)], identity);
    };
    std::promise<void> sent;
    std::thread sender([&] {
      {
        Communicator comm(join(0));
        const float value = 7.0f;
        comm.send(&value, 1, DataType::f32, 1);
      }
      job.leave(0);
      sent.set_value();
    });
    // Time enough for a sender that does not wait to be through; one that waits stays in send().
    EXPECT_EQ(sent.get_future().wait_for(std::chrono::milliseconds(5)), std::future_status::timeout);
    {
      Communicator comm(join(1));
      float value = 0;
      comm.recv(&value, 1, DataType::f32, 0);
      EXPECT_EQ(value, 7.0f);
    }
    sender.join();
    EXPECT_EQ(job.segments(), 0u);
  }
}

TEST(Death, ReachesCommunicatorsThatWereSplitOff) {
  LocalJob job(4);
  run_ranks(job, [&](Communicator& comm, int rank) {
    Communicator half = comm.split(rank % 2, rank);
    std::vector<float> values(4, 1.0f);
    half.all_reduce(std::span<float>(values), ReduceOp::sum);
    EXPECT_EQ(values[0], 2.0f);
    if (rank == 3) {
      job.kill(3);
      return;
    }
    if (rank == 1) {
      EXPECT_THROW(half.all_reduce(std::span<float>(values), ReduceOp::sum), Error);
    }
    EXPECT_FALSE(comm.agree().committed());
    EXPECT_EQ(half.size(), rank == 1 ? 1 : 2);
    values.assign(4, 1.0f);
    half.all_reduce(std::span<float>(values), ReduceOp::sum);
    EXPECT_EQ(values[3], rank == 1 ? 1.0f : 2.0f);
    comm.barrier();
  });
}

TEST(Death, ARankThatWasRemovedIsToldSo) {
  LocalJob job(3);
  run_ranks(job, [&](Communicator& comm, int rank) {
    if (rank == 0) {
      job.kill(2, core::LossCause::heartbeat);  // it lives on
    }
    if (rank == 2) {
      while (comm.status().ok()) std::this_thread::yield();
      try {
        comm.agree();
        ADD_FAILURE() << "a removed rank has no part in the agreement";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::stale_epoch) << error.what();
      }
      std::vector<float> values(10, 1.0f);
      EXPECT_THROW(comm.all_reduce(std::span<float>(values), ReduceOp::sum), Error);
      return;
    }
    EXPECT_THROW(comm.barrier(), Error);
    EXPECT_TRUE(comm.agree().membership_changed());
    comm.barrier();
  });
}

}  // namespace
}  // namespace tugline::comm::test

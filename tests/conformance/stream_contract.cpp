// SPDX-License-Identifier: Apache-2.0
// Streams: order, blocking, run(), destruction.
#include <memory>
#include <numeric>
#include <stdexcept>

#include "conformance/contract.h"

namespace tugline::contract {

TEST_P(DeviceContract, stream_runs_tasks_in_order) {
  Stream stream = device().stream();
  std::vector<int> seen;
  for (int i = 0; i < 100; ++i) {
    stream.launch([&seen, i] {
      seen.push_back(i);
      return Status::success();
    });
  }
  stream.sync();
  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(seen, expected);
}

TEST_P(DeviceContract, stream_launch_does_not_block_and_is_done_tells) {
  Gate gate;
  std::atomic<int> done = 0;
  Stream stream = device().stream();
  EXPECT_TRUE(stream.is_done());
  stream.launch(hold(gate));
  stream.launch(count(done));
  EXPECT_FALSE(stream.is_done());
  EXPECT_EQ(done, 0);
  gate.open();
  stream.sync();
  EXPECT_TRUE(stream.is_done());
  EXPECT_EQ(done, 1);
}

TEST_P(DeviceContract, stream_sync_of_an_idle_stream_returns) {
  Stream stream = device().stream();
  stream.sync();
  stream.sync();
  EXPECT_TRUE(stream.ref().status().ok());
}

TEST_P(DeviceContract, streams_do_not_wait_for_each_other) {
  Gate gate;
  std::atomic<int> done = 0;
  Stream blocked = device(0).stream();
  Stream free = device(1).stream();
  blocked.launch(hold(gate));
  free.launch(count(done));
  free.sync();
  EXPECT_EQ(done, 1);
  EXPECT_FALSE(blocked.is_done());
  gate.open();
  blocked.sync();
}

TEST_P(DeviceContract, stream_run_returns_the_status_and_does_not_keep_it) {
  Stream stream = device().stream();
  Status status = stream.ref().run([] { return Status{.code = ErrorCode::torn, .peer = 3, .detail = 17}; });
  EXPECT_EQ(status.code, ErrorCode::torn);
  EXPECT_EQ(status.peer, 3);
  EXPECT_EQ(status.detail, 17u);
  EXPECT_TRUE(stream.ref().status().ok());
  EXPECT_TRUE(stream.ref().run([] { return Status::success(); }).ok());
  stream.sync();
}

TEST_P(DeviceContract, stream_run_lets_exceptions_through_idle_and_busy) {
  Stream stream = device().stream();
  auto throwing = []() -> Status { throw std::runtime_error("from inside"); };
  EXPECT_THROW((void)stream.ref().run(throwing), std::runtime_error);
  Gate gate;
  stream.launch(hold(gate));
  std::thread opener([&] { gate.open(); });
  EXPECT_THROW((void)stream.ref().run(throwing), std::runtime_error);
  opener.join();
  EXPECT_TRUE(stream.ref().status().ok());
  stream.sync();
}

TEST_P(DeviceContract, stream_run_waits_for_enqueued_work) {
  Gate gate;
  int value = 0;
  Stream stream = device().stream();
  stream.launch(hold(gate));
  stream.launch(set(value, 5));
  std::thread opener([&] { gate.open(); });
  int seen = 0;
  EXPECT_TRUE(stream.ref()
                  .run([&] {
                    seen = value;
                    return Status::success();
                  })
                  .ok());
  opener.join();
  EXPECT_EQ(seen, 5);
}

TEST_P(DeviceContract, stream_work_enqueued_during_run_waits_for_it) {
  Stream stream = device().stream();
  std::atomic<int> done = 0;
  bool was_pending = false;
  EXPECT_TRUE(stream.ref()
                  .run([&] {
                    std::thread([&] { stream.launch(count(done)); }).join();
                    was_pending = done == 0 && !stream.is_done();
                    return Status::success();
                  })
                  .ok());
  stream.sync();
  EXPECT_TRUE(was_pending);
  EXPECT_EQ(done, 1);
}

TEST_P(DeviceContract, stream_sync_waits_for_a_run_of_another_thread) {
  Stream stream = device().stream();
  Gate inside;
  Gate gate;
  int value = 0;
  std::thread runner([&] {
    (void)stream.ref().run([&] {
      inside.open();
      gate.wait();
      value = 9;
      return Status::success();
    });
  });
  ASSERT_TRUE(inside.wait());
  EXPECT_FALSE(stream.is_done());
  std::thread opener([&] { gate.open(); });
  stream.sync();
  EXPECT_EQ(value, 9);
  opener.join();
  runner.join();
}

TEST_P(DeviceContract, stream_runs_of_many_threads_exclude_each_other) {
  Stream stream = device().stream();
  constexpr int kThreads = 4;
  constexpr int kRuns = 500;
  int unguarded = 0;  // guarded by the stream's order alone
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRuns; ++i) {
        (void)stream.ref().run([&] {
          ++unguarded;
          return Status::success();
        });
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(unguarded, kThreads * kRuns);
}

TEST_P(DeviceContract, stream_keeps_each_threads_order) {
  Stream stream = device().stream();
  constexpr int kThreads = 4;
  constexpr int kTasks = 250;
  std::vector<std::vector<int>> seen(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kTasks; ++i) {
        auto task = [&seen, t, i] {
          seen[static_cast<std::size_t>(t)].push_back(i);
          return Status::success();
        };
        if (i % 10 == 9) {
          (void)stream.ref().run(task);
        } else {
          stream.launch(task);
        }
        if (i % 50 == 0) stream.sync();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  stream.sync();
  std::vector<int> expected(kTasks);
  std::iota(expected.begin(), expected.end(), 0);
  for (const auto& order : seen) EXPECT_EQ(order, expected);
}

TEST_P(DeviceContract, stream_destruction_waits_for_its_work) {
  Gate gate;
  std::atomic<int> done = 0;
  std::thread opener;
  {
    Stream stream = device().stream();
    stream.launch(hold(gate));
    stream.launch(count(done));
    opener = std::thread([&] { gate.open(); });
  }
  EXPECT_EQ(done, 1);
  opener.join();
}

TEST_P(DeviceContract, stream_can_be_moved) {
  std::atomic<int> done = 0;
  Stream first = device().stream();
  first.launch(count(done));
  Stream second = std::move(first);
  second.launch(count(done));
  Stream third = device().stream();
  third.launch(count(done));
  third = std::move(second);
  third.launch(count(done));
  third.sync();
  EXPECT_EQ(done, 4);
}

TEST_P(DeviceContract, stream_releases_a_tasks_captures_before_sync_returns) {
  auto held = std::make_shared<int>(1);
  Stream stream = device().stream();
  stream.launch([held] { return Status::success(); });
  stream.sync();
  EXPECT_EQ(held.use_count(), 1);
}

TEST_P(DeviceContract, default_stream_is_one_per_device) {
  std::atomic<int> done = 0;
  for (Device* each : devices()) {
    StreamRef stream = each->default_stream();
    EXPECT_EQ(stream, each->default_stream());
    EXPECT_EQ(&stream.device(), each);
    stream.launch(count(done));
    stream.sync();
  }
  EXPECT_EQ(done, static_cast<int>(devices().size()));
  if (devices().size() > 1) {
    EXPECT_NE(device(0).default_stream(), device(1).default_stream());
  }
}

TEST_P(DeviceContract, stream_misuse_is_refused) {
  EXPECT_EQ(code_of([&] { device().sync_stream(0); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { device().launch(0, [] { return Status::success(); }); }),
            ErrorCode::invalid_argument);
  Stream stream = device().stream();
  std::string text;
  EXPECT_EQ(code_of([&] { stream.launch(HostTask()); }, &text), ErrorCode::invalid_argument);
  EXPECT_NE(text.find("empty task"), std::string::npos) << text;
  Event event(device());
  EXPECT_NE(code_of([&] { device().sync_stream(EventRef(event).get()); }), ErrorCode::ok);
  if (devices().size() > 1) {
    EXPECT_EQ(code_of([&] { device(1).sync_stream(stream.ref().get()); }, &text),
              ErrorCode::invalid_argument);
  }
  stream.sync();
}

TEST_P(DeviceContract, device_describes_itself) {
  for (std::size_t i = 0; i < devices().size(); ++i) {
    const DeviceInfo& info = device(i).info();
    EXPECT_EQ(info.kind, device(0).info().kind);
    EXPECT_FALSE(info.uuid.empty());
    EXPECT_FALSE(info.name.empty());
    EXPECT_GT(info.memory_bytes, 0u);
    EXPECT_GT(device(i).free_bytes(), 0u);
    EXPECT_LE(device(i).free_bytes(), info.memory_bytes);
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_NE(info.uuid, device(j).info().uuid);
      EXPECT_NE(info.index, device(j).info().index);
    }
  }
}

}  // namespace tugline::contract

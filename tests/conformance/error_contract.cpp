// SPDX-License-Identifier: Apache-2.0
// Asynchronous errors: kept, inherited by those who depend on them, thrown once by sync().
#include <algorithm>
#include <memory>
#include <stdexcept>

#include "conformance/contract.h"

namespace tugline::contract {

TEST_P(DeviceContract, error_skips_later_work_and_is_thrown_once) {
  std::atomic<int> done = 0;
  Stream stream = device().stream();
  stream.launch(count(done));
  stream.launch([] { return Status{.code = ErrorCode::peer_lost, .peer = 2, .detail = 41}; });
  stream.launch(count(done));
  std::string text;
  EXPECT_EQ(code_of([&] { stream.sync(); }, &text), ErrorCode::peer_lost);
  EXPECT_NE(text.find("peer 2"), std::string::npos) << text;
  EXPECT_NE(text.find("41"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
  EXPECT_EQ(done, 1);
  stream.sync();
  stream.launch(count(done));
  stream.sync();
  EXPECT_EQ(done, 2);
}

TEST_P(DeviceContract, error_of_a_thrown_error_keeps_its_text) {
  Stream stream = device().stream();
  stream.launch([]() -> Status {
    throw Error(ErrorCode::torn, "version 5 of 'model' is torn", "write it again",
                {.operation = "read", .rank = 1});
  });
  std::string text;
  EXPECT_EQ(code_of([&] { stream.sync(); }, &text), ErrorCode::torn);
  EXPECT_NE(text.find("version 5 of 'model' is torn"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
  EXPECT_NE(text.find("write it again"), std::string::npos) << text;
}

TEST_P(DeviceContract, error_of_other_exceptions_is_converted) {
  Stream stream = device().stream();
  stream.launch([]() -> Status { throw std::runtime_error("plain words"); });
  std::string text;
  EXPECT_EQ(code_of([&] { stream.sync(); }, &text), ErrorCode::internal);
  EXPECT_NE(text.find("plain words"), std::string::npos) << text;
  stream.launch([]() -> Status { throw 7; });
  EXPECT_EQ(code_of([&] { stream.sync(); }), ErrorCode::internal);
  stream.launch([]() -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(code_of([&] { stream.sync(); }), ErrorCode::out_of_memory);
  stream.sync();
}

TEST_P(DeviceContract, error_shows_in_status_without_being_cleared) {
  Stream stream = device().stream();
  Event event(device());
  EXPECT_TRUE(stream.ref().status().ok());
  stream.launch(fail(ErrorCode::timed_out, 5));
  stream.record(event);
  EXPECT_EQ(code_of([&] { event.sync(); }), ErrorCode::timed_out);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(stream.ref().status().code, ErrorCode::timed_out);
    EXPECT_EQ(stream.ref().status().detail, 5u);
  }
  EXPECT_EQ(code_of([&] { stream.sync(); }), ErrorCode::timed_out);
  EXPECT_TRUE(stream.ref().status().ok());
}

TEST_P(DeviceContract, error_first_one_stays) {
  Stream stream = device().stream();
  stream.launch(fail(ErrorCode::torn));
  stream.launch(fail(ErrorCode::aborted));
  EXPECT_EQ(code_of([&] { stream.sync(); }), ErrorCode::torn);
  stream.sync();
}

TEST_P(DeviceContract, error_is_thrown_by_every_sync_of_an_event_behind_it) {
  Stream stream = device().stream();
  Event before(device());
  Event behind(device());
  Gate gate;
  stream.launch(hold(gate));
  stream.record(before);
  stream.launch(fail(ErrorCode::aborted));
  stream.record(behind);
  gate.open();
  EXPECT_EQ(code_of([&] { behind.sync(); }), ErrorCode::aborted);
  EXPECT_EQ(code_of([&] { behind.sync(); }), ErrorCode::aborted);
  EXPECT_TRUE(behind.is_done());
  before.sync();
  EXPECT_EQ(code_of([&] { stream.sync(); }), ErrorCode::aborted);
  EXPECT_EQ(code_of([&] { behind.sync(); }), ErrorCode::aborted);  // until it is recorded again
  stream.record(behind);
  behind.sync();
}

TEST_P(DeviceContract, error_recorded_on_an_idle_failed_stream_is_the_streams) {
  Stream stream = device().stream();
  Event first(device());
  stream.launch(fail(ErrorCode::aborted));
  stream.record(first);
  EXPECT_EQ(code_of([&] { first.sync(); }), ErrorCode::aborted);
  while (!stream.is_done()) std::this_thread::yield();
  Event second(device());
  stream.record(second);
  EXPECT_EQ(code_of([&] { second.sync(); }), ErrorCode::aborted);
  EXPECT_EQ(code_of([&] { stream.sync(); }), ErrorCode::aborted);
}

TEST_P(DeviceContract, error_is_inherited_through_events) {
  Stream first = device(0).stream();
  Stream second = device(1).stream();
  Stream third = device(2).stream();
  Event one(device(0));
  Event two(device(1));
  std::atomic<int> done = 0;
  Gate gate;
  first.launch(hold(gate));
  first.launch(fail(ErrorCode::peer_lost));
  first.record(one);
  second.wait(one);
  second.launch(count(done));
  second.record(two);
  gate.open();
  EXPECT_EQ(code_of([&] { two.sync(); }), ErrorCode::peer_lost);
  third.wait(two);  // done already, and failed
  third.launch(count(done));
  for (Stream* stream : {&first, &second, &third}) {
    EXPECT_EQ(code_of([&] { stream->sync(); }), ErrorCode::peer_lost);
    stream->sync();
  }
  EXPECT_EQ(done, 0);
}

TEST_P(DeviceContract, error_does_not_touch_other_streams) {
  Stream failing = device().stream();
  Stream fine = device().stream();
  std::atomic<int> done = 0;
  failing.launch(fail(ErrorCode::torn));
  EXPECT_EQ(code_of([&] { failing.sync(); }), ErrorCode::torn);
  fine.launch(count(done));
  fine.sync();
  EXPECT_EQ(done, 1);
}

TEST_P(DeviceContract, error_skips_run_copy_and_fill) {
  Stream stream = device().stream();
  Event event(device());
  Gate gate;
  std::atomic<int> ran = 0;
  stream.launch(hold(gate));
  stream.launch(fail(ErrorCode::aborted, 3));
  std::thread opener([&] { gate.open(); });
  auto call = [&] {
    ++ran;
    return Status::success();
  };
  EXPECT_EQ(stream.ref().run(call).code, ErrorCode::aborted);  // behind the failure
  opener.join();
  EXPECT_EQ(stream.ref().run(call).code, ErrorCode::aborted);  // idle, still failed
  int from = 1;
  int to = 0;
  stream.ref().copy(&to, &from, sizeof(int));
  EXPECT_EQ(code_of([&] { stream.sync(); }), ErrorCode::aborted);
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(to, 0);
  EXPECT_TRUE(stream.ref().run(call).ok());
  EXPECT_EQ(ran, 1);
}

TEST_P(DeviceContract, error_is_dropped_with_its_stream) {
  std::atomic<int> done = 0;
  {
    Stream stream = device().stream();
    stream.launch(fail(ErrorCode::torn));
    stream.launch(count(done));
  }
  EXPECT_EQ(done, 0);
  Stream stream = device().stream();
  stream.sync();
}

TEST_P(DeviceContract, error_is_thrown_to_exactly_one_of_many_syncs) {
  Stream stream = device().stream();
  for (int round = 0; round < 20; ++round) {
    Gate gate;
    stream.launch(hold(gate));
    stream.launch(fail(ErrorCode::torn));
    std::atomic<int> thrown = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        if (code_of([&] { stream.sync(); }) == ErrorCode::torn) ++thrown;
      });
    }
    gate.open();
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(thrown, 1);
  }
}

}  // namespace tugline::contract

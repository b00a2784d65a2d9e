// SPDX-License-Identifier: Apache-2.0
// What is illegal under capture, and what it does to the capture.
#include <functional>
#include <memory>

#include "conformance/contract.h"

namespace tugline::contract {
namespace {

struct Illegal {
  const char* name;
  std::function<void(Stream&, Event& captured)> call;
};

}  // namespace

TEST_P(DeviceContract, capture_is_broken_by_illegal_calls) {
  const Illegal calls[] = {
      {"sync", [](Stream& stream, Event&) { stream.sync(); }},
      {"is_done", [](Stream& stream, Event&) { (void)stream.is_done(); }},
      {"run", [](Stream& stream, Event&) { (void)stream.ref().run([] { return Status::success(); }); }},
      {"begin_capture", [](Stream& stream, Event&) { stream.begin_capture(); }},
      {"event sync", [](Stream&, Event& captured) { captured.sync(); }},
      {"event is_done", [](Stream&, Event& captured) { (void)captured.is_done(); }},
  };
  Stream stream = device().stream();
  std::atomic<int> done = 0;
  for (const Illegal& illegal : calls) {
    SCOPED_TRACE(illegal.name);
    Event captured(device());
    stream.begin_capture();
    stream.launch(count(done));
    stream.record(captured);
    std::string text;
    EXPECT_EQ(code_of([&] { illegal.call(stream, captured); }, &text), ErrorCode::invalid_usage);
    EXPECT_TRUE(stream.ref().is_capturing());
    EXPECT_EQ(code_of([&] { stream.launch(count(done)); }, &text), ErrorCode::invalid_usage);
    EXPECT_NE(text.find("broken"), std::string::npos) << text;
    EXPECT_EQ(code_of([&] { (void)stream.end_capture(); }), ErrorCode::invalid_usage);
    EXPECT_FALSE(stream.ref().is_capturing());
    stream.sync();
  }
  EXPECT_EQ(done, 0);
  stream.launch(count(done));
  stream.sync();
  EXPECT_EQ(done, 1);
}

TEST_P(DeviceContract, capture_end_without_begin_is_refused) {
  Stream stream = device().stream();
  EXPECT_EQ(code_of([&] { (void)stream.end_capture(); }), ErrorCode::invalid_usage);
  std::atomic<int> done = 0;
  stream.launch(count(done));
  stream.sync();
  EXPECT_EQ(done, 1);
}

TEST_P(DeviceContract, capture_leaves_other_streams_alone) {
  Stream capturing = device().stream();
  Stream free = device().stream();
  Event event(device());
  std::atomic<int> done = 0;
  capturing.begin_capture();
  free.launch(count(done));
  free.record(event);
  event.sync();
  free.sync();
  EXPECT_EQ(done, 1);
  EXPECT_TRUE(free.ref().run([] { return Status::success(); }).ok());
  (void)capturing.end_capture();
}

TEST_P(DeviceContract, capture_does_not_touch_work_enqueued_before) {
  Stream stream = device().stream();
  std::atomic<int> done = 0;
  Gate gate;
  stream.launch(hold(gate));
  stream.launch(count(done));
  stream.begin_capture();
  stream.launch(count(done));
  Graph graph = stream.end_capture();
  EXPECT_EQ(done, 0);
  gate.open();
  stream.sync();
  EXPECT_EQ(done, 1);
}

TEST_P(DeviceContract, capture_with_an_unjoined_stream_is_refused) {
  Stream stream = device().stream();
  Stream side = device().stream();
  Event fork(device());
  Event join(device());
  std::atomic<int> done = 0;
  stream.begin_capture();
  stream.record(fork);
  side.wait(fork);
  side.launch(count(done));
  side.record(join);
  stream.wait(join);
  side.launch(count(done));  // behind the join
  std::string text;
  EXPECT_EQ(code_of([&] { (void)stream.end_capture(); }, &text), ErrorCode::invalid_usage);
  EXPECT_NE(text.find("wait"), std::string::npos) << text;
  EXPECT_FALSE(stream.ref().is_capturing());
  EXPECT_FALSE(side.ref().is_capturing());
  stream.sync();
  side.sync();
  EXPECT_EQ(done, 0);
}

TEST_P(DeviceContract, capture_joined_through_a_third_stream_is_whole) {
  Stream stream = device().stream();
  Stream second = device().stream();
  Stream third = device().stream();
  std::vector<Event> events;
  for (int i = 0; i < 4; ++i) events.emplace_back(device());
  std::atomic<int> done = 0;
  stream.begin_capture();
  stream.record(events[0]);
  second.wait(events[0]);
  second.launch(count(done));
  second.record(events[1]);
  third.wait(events[1]);
  third.launch(count(done));
  third.record(events[2]);
  stream.wait(events[2]);
  Graph graph = stream.end_capture();
  graph.launch(stream);
  stream.sync();
  EXPECT_EQ(done, 2);
}

TEST_P(DeviceContract, capture_cannot_be_ended_by_a_stream_that_joined) {
  Stream stream = device().stream();
  Stream side = device().stream();
  Event fork(device());
  stream.begin_capture();
  stream.record(fork);
  side.wait(fork);
  EXPECT_EQ(code_of([&] { (void)side.end_capture(); }), ErrorCode::invalid_usage);
  EXPECT_EQ(code_of([&] { (void)stream.end_capture(); }), ErrorCode::invalid_usage);
  side.sync();
  stream.sync();
}

TEST_P(DeviceContract, capture_is_broken_by_a_wait_for_an_event_from_outside) {
  Stream stream = device().stream();
  Stream outside = device().stream();
  Event event(device());
  outside.record(event);
  stream.begin_capture();
  EXPECT_EQ(code_of([&] { stream.wait(event); }), ErrorCode::invalid_usage);
  EXPECT_EQ(code_of([&] { (void)stream.end_capture(); }), ErrorCode::invalid_usage);
}

TEST_P(DeviceContract, captures_are_broken_when_they_are_mixed) {
  Stream one = device().stream();
  Stream two = device().stream();
  Event event(device());
  one.begin_capture();
  two.begin_capture();
  one.record(event);
  EXPECT_EQ(code_of([&] { two.wait(event); }), ErrorCode::invalid_usage);
  EXPECT_EQ(code_of([&] { (void)one.end_capture(); }), ErrorCode::invalid_usage);
  EXPECT_EQ(code_of([&] { (void)two.end_capture(); }), ErrorCode::invalid_usage);
}

TEST_P(DeviceContract, captured_event_is_no_time_until_recorded_again) {
  Stream stream = device().stream();
  Event event(device());
  stream.begin_capture();
  stream.record(event);
  Graph graph = stream.end_capture();
  EXPECT_EQ(code_of([&] { event.sync(); }), ErrorCode::invalid_usage);
  EXPECT_EQ(code_of([&] { (void)event.is_done(); }), ErrorCode::invalid_usage);
  EXPECT_EQ(code_of([&] { (void)event.since(event); }), ErrorCode::invalid_usage);
  EXPECT_EQ(code_of([&] { stream.wait(event); }), ErrorCode::invalid_usage);
  stream.record(event);
  event.sync();
}

TEST_P(DeviceContract, capture_is_broken_when_a_stream_of_it_is_destroyed) {
  Stream stream = device().stream();
  Event fork(device());
  stream.begin_capture();
  stream.record(fork);
  {
    Stream side = device().stream();
    side.wait(fork);
  }
  EXPECT_EQ(code_of([&] { (void)stream.end_capture(); }), ErrorCode::invalid_usage);
  {
    Stream other = device().stream();
    other.begin_capture();
  }
  stream.sync();
}

TEST_P(DeviceContract, capture_on_many_threads_at_once) {
  std::vector<std::thread> threads;
  std::atomic<int> done = 0;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        Stream stream = device(t).stream();
        stream.begin_capture();
        for (int task = 0; task < 4; ++task) stream.launch(count(done));
        Graph graph = stream.end_capture();
        graph.launch(stream);
        stream.sync();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(done, 400);
}

TEST_P(DeviceContract, handle_of_a_destroyed_object_is_refused) {
  std::uintptr_t old_stream = 0;
  std::uintptr_t old_event = 0;
  {
    Stream stream = device().stream();
    Event event(device());
    old_stream = stream.ref().get();
    old_event = EventRef(event).get();
  }
  Stream reuses_the_slot = device().stream();
  Event event(device());
  std::string text;
  EXPECT_EQ(code_of([&] { device().sync_stream(old_stream); }, &text), ErrorCode::invalid_argument);
  EXPECT_NE(text.find("destroyed"), std::string::npos) << text;
  EXPECT_EQ(code_of([&] { device().sync_event(old_event); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { device().launch_graph(1, reuses_the_slot.ref().get()); }),
            ErrorCode::invalid_argument);
}

}  // namespace tugline::contract

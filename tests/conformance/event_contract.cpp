// SPDX-License-Identifier: Apache-2.0
// Events: order between streams, the record that counts, time.
#include <memory>
#include <optional>

#include "conformance/contract.h"

namespace tugline::contract {

TEST_P(DeviceContract, event_never_recorded_is_done_and_waits_for_nothing) {
  Event event(device());
  EXPECT_TRUE(event.is_done());
  event.sync();
  std::atomic<int> done = 0;
  Stream stream = device().stream();
  stream.wait(event);
  stream.launch(count(done));
  stream.sync();
  EXPECT_EQ(done, 1);
}

TEST_P(DeviceContract, event_is_done_when_the_work_before_it_is) {
  Gate gate;
  Gate later;
  Stream stream = device().stream();
  Event event(device());
  stream.launch(hold(gate));
  stream.record(event);
  stream.launch(hold(later));
  EXPECT_FALSE(event.is_done());
  gate.open();
  event.sync();
  EXPECT_TRUE(event.is_done());
  EXPECT_FALSE(stream.is_done());
  later.open();
  stream.sync();
}

TEST_P(DeviceContract, event_recorded_on_an_idle_stream_gets_done) {
  Stream stream = device().stream();
  Event event(device());
  stream.record(event);
  event.sync();
  EXPECT_TRUE(event.is_done());
}

TEST_P(DeviceContract, event_orders_streams_across_devices) {
  for (std::size_t i = 0; i < devices().size() + 1; ++i) {
    Gate gate;
    int value = 0;
    int seen = -1;
    Stream producer = device(i).stream();
    Stream consumer = device(i + 1).stream();
    Event event(device(i));
    producer.launch(hold(gate));
    producer.launch(set(value, 7));
    producer.record(event);
    consumer.wait(event);
    consumer.launch([&] {
      seen = value;
      return Status::success();
    });
    EXPECT_FALSE(consumer.is_done());
    gate.open();
    consumer.sync();
    EXPECT_EQ(seen, 7);
  }
}

TEST_P(DeviceContract, event_wait_does_not_hold_back_earlier_work_of_the_waiter) {
  Gate gate;
  std::atomic<int> done = 0;
  Stream producer = device().stream();
  Stream consumer = device().stream();
  Event event(device());
  Event before(device());
  producer.launch(hold(gate));
  producer.record(event);
  consumer.launch(count(done));
  consumer.record(before);
  consumer.wait(event);
  before.sync();
  EXPECT_EQ(done, 1);
  EXPECT_FALSE(consumer.is_done());
  gate.open();
  consumer.sync();
}

TEST_P(DeviceContract, event_wait_uses_the_record_at_the_time_of_the_call) {
  Gate first;
  Gate second;
  std::atomic<int> done = 0;
  Stream producer = device().stream();
  Stream consumer = device().stream();
  Event event(device());
  producer.launch(hold(first));
  producer.record(event);
  consumer.wait(event);
  consumer.launch(count(done));
  producer.launch(hold(second));
  producer.record(event);
  first.open();
  consumer.sync();  // the second record does not matter to it
  EXPECT_EQ(done, 1);
  EXPECT_FALSE(event.is_done());
  second.open();
  event.sync();
}

TEST_P(DeviceContract, event_recorded_after_the_wait_does_not_matter) {
  Gate gate;
  Stream producer = device().stream();
  Stream consumer = device().stream();
  Event event(device());
  consumer.wait(event);
  producer.launch(hold(gate));
  producer.record(event);
  consumer.sync();
  EXPECT_FALSE(event.is_done());
  gate.open();
  producer.sync();
}

TEST_P(DeviceContract, event_may_be_destroyed_while_it_is_waited_for) {
  Gate gate;
  std::atomic<int> done = 0;
  Stream producer = device().stream();
  Stream consumer = device().stream();
  {
    Event event(device());
    producer.launch(hold(gate));
    producer.record(event);
    consumer.wait(event);
  }
  consumer.launch(count(done));
  EXPECT_FALSE(consumer.is_done());
  gate.open();
  consumer.sync();
  EXPECT_EQ(done, 1);
}

TEST_P(DeviceContract, event_chain_through_many_streams) {
  constexpr int kStreams = 6;
  constexpr int kRounds = 20;
  std::vector<Stream> streams;
  for (std::size_t i = 0; i < kStreams; ++i) streams.push_back(device(i).stream());
  std::vector<int> trail;  // guarded by the chain of events alone
  std::optional<Event> last;
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < kStreams; ++i) {
      if (last) streams[i].wait(*last);
      streams[i].launch([&trail, value = round * kStreams + static_cast<int>(i)] {
        trail.push_back(value);
        return Status::success();
      });
      last.emplace(device(i));
      streams[i].record(*last);
    }
  }
  last->sync();
  ASSERT_EQ(trail.size(), static_cast<std::size_t>(kStreams * kRounds));
  for (std::size_t i = 0; i < trail.size(); ++i) EXPECT_EQ(trail[i], static_cast<int>(i));
}

TEST_P(DeviceContract, event_interval_is_the_time_between_records) {
  Stream stream = device().stream();
  Event start(device());
  Event end(device());
  Event never(device());
  Gate gate;
  stream.record(start);
  stream.launch(hold(gate));
  stream.record(end);
  EXPECT_EQ(code_of([&] { (void)end.since(start); }), ErrorCode::invalid_usage);
  gate.open();
  end.sync();
  EXPECT_GE(end.since(start).count(), 0);
  EXPECT_EQ(end.since(start), -start.since(end));
  EXPECT_EQ(end.since(end).count(), 0);
  EXPECT_EQ(code_of([&] { (void)end.since(never); }), ErrorCode::invalid_usage);
}

TEST_P(DeviceContract, event_interval_covers_the_work_between) {
  Stream stream = device().stream();
  Event start(device());
  Event end(device());
  std::chrono::steady_clock::duration inside{};
  stream.record(start);
  stream.launch([&] {
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(5)) {
    }
    inside = std::chrono::steady_clock::now() - begin;
    return Status::success();
  });
  stream.record(end);
  end.sync();
  EXPECT_GE(end.since(start), inside * 9 / 10);  // a device's clock may tick coarser than the host's
}

TEST_P(DeviceContract, event_misuse_is_refused) {
  Stream stream = device().stream();
  EXPECT_EQ(code_of([&] { device().record_event(0, stream.ref().get()); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { device().sync_event(0); }), ErrorCode::invalid_argument);
  if (devices().size() > 1) {
    Event foreign(device(1));
    EXPECT_EQ(code_of([&] { stream.record(foreign); }), ErrorCode::invalid_argument);
  }
}

TEST_P(DeviceContract, event_can_be_moved) {
  Gate gate;
  Stream stream = device().stream();
  Event first(device());
  stream.launch(hold(gate));
  stream.record(first);
  Event second = std::move(first);
  EXPECT_FALSE(second.is_done());
  Event third(device());
  third = std::move(second);
  EXPECT_FALSE(third.is_done());
  gate.open();
  third.sync();
}

}  // namespace tugline::contract

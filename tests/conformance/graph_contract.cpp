// SPDX-License-Identifier: Apache-2.0
// Graphs: what is captured, what a replay does.
#include <cstring>
#include <optional>

#include "conformance/contract.h"

namespace tugline::contract {

TEST_P(DeviceContract, graph_capture_records_instead_of_running) {
  Stream stream = device().stream();
  std::atomic<int> done = 0;
  EXPECT_FALSE(stream.ref().is_capturing());
  stream.begin_capture();
  EXPECT_TRUE(stream.ref().is_capturing());
  stream.launch(count(done));
  Graph graph = stream.end_capture();
  EXPECT_FALSE(stream.ref().is_capturing());
  stream.sync();
  EXPECT_EQ(done, 0);
  for (int i = 1; i <= 5; ++i) {
    graph.launch(stream);
    stream.sync();
    EXPECT_EQ(done, i);
  }
  Stream other = device(1).stream();
  graph.launch(other);
  other.sync();
  EXPECT_EQ(done, 6);
}

TEST_P(DeviceContract, graph_replays_copies_and_fills_with_their_arguments) {
  constexpr std::size_t kBytes = 100'000;
  std::vector<std::uint8_t> input(kBytes, 1);
  std::vector<std::uint8_t> output(kBytes, 0);
  void* memory = device().allocate(kBytes);
  Stream stream = device().stream();
  stream.begin_capture();
  stream.ref().copy(memory, input.data(), kBytes);
  stream.ref().fill(memory, 9, 10);
  stream.ref().copy(output.data(), memory, kBytes);
  Graph graph = stream.end_capture();
  EXPECT_EQ(output[50], 0);
  for (std::uint8_t value : {2, 3, 4}) {
    input.assign(kBytes, value);  // read when the replay runs
    graph.launch(stream);
    stream.sync();
    EXPECT_EQ(output[9], 9);
    EXPECT_EQ(output[10], value);
    EXPECT_EQ(output[kBytes - 1], value);
  }
  device().deallocate(memory, kBytes);
}

TEST_P(DeviceContract, graph_launch_keeps_stream_order_and_does_not_block) {
  Stream stream = device().stream();
  int value = 0;
  int seen_inside = -1;
  int seen_after = -1;
  Gate gate;
  stream.begin_capture();
  stream.launch([&] {
    seen_inside = value;
    value = 2;
    return Status::success();
  });
  Graph graph = stream.end_capture();
  stream.launch(hold(gate));
  stream.launch(set(value, 1));
  graph.launch(stream);
  stream.launch([&] {
    seen_after = value;
    return Status::success();
  });
  EXPECT_FALSE(stream.is_done());
  gate.open();
  stream.sync();
  EXPECT_EQ(seen_inside, 1);
  EXPECT_EQ(seen_after, 2);
}

TEST_P(DeviceContract, graph_may_be_destroyed_while_it_runs) {
  Stream stream = device().stream();
  Gate gate;
  std::atomic<int> done = 0;
  {
    stream.begin_capture();
    stream.launch(count(done));
    Graph graph = stream.end_capture();
    stream.launch(hold(gate));
    graph.launch(stream);
    graph.launch(stream);
  }
  gate.open();
  stream.sync();
  EXPECT_EQ(done, 2);
}

TEST_P(DeviceContract, graph_outlives_the_stream_and_events_it_was_captured_with) {
  std::optional<Graph> graph;
  std::atomic<int> done = 0;
  {
    Stream stream = device().stream();
    Stream side = device().stream();
    Event fork(device());
    Event join(device());
    stream.begin_capture();
    stream.record(fork);
    side.wait(fork);
    side.launch(count(done));
    side.record(join);
    stream.wait(join);
    graph.emplace(stream.end_capture());
  }
  Stream stream = device().stream();
  graph->launch(stream);
  stream.sync();
  EXPECT_EQ(done, 1);
}

TEST_P(DeviceContract, graph_of_nothing_can_be_launched) {
  Stream stream = device().stream();
  stream.begin_capture();
  Graph graph = stream.end_capture();
  graph.launch(stream);
  stream.sync();
  EXPECT_TRUE(stream.is_done());
}

TEST_P(DeviceContract, graph_forks_and_joins_through_events) {
  Stream stream = device().stream();
  Stream side = device().stream();
  Event fork(device());
  Event join(device());
  int start = 0;
  int left = 0;
  int right = 0;
  int end = 0;
  stream.begin_capture();
  stream.launch([&] {
    ++start;
    return Status::success();
  });
  stream.record(fork);
  side.wait(fork);
  EXPECT_TRUE(side.ref().is_capturing());
  side.launch([&] {
    right = start * 10;
    return Status::success();
  });
  stream.launch([&] {
    left = start * 100;
    return Status::success();
  });
  side.record(join);
  stream.wait(join);
  stream.launch([&] {
    end = left + right;
    return Status::success();
  });
  Graph graph = stream.end_capture();
  EXPECT_FALSE(side.ref().is_capturing());
  EXPECT_EQ(start, 0);
  for (int i = 1; i <= 20; ++i) {
    graph.launch(stream);
    stream.sync();
    EXPECT_EQ(end, 110 * i);
  }
  std::atomic<int> done = 0;
  side.launch(count(done));  // free again
  side.sync();
  EXPECT_EQ(done, 1);
}

TEST_P(DeviceContract, graph_launches_on_two_streams_do_not_overlap) {
  Stream one = device(0).stream();
  Stream two = device(1).stream();
  std::atomic<int> inside = 0;
  std::atomic<int> overlaps = 0;
  int unguarded = 0;
  one.begin_capture();
  one.launch([&] {
    if (++inside > 1) ++overlaps;
    ++unguarded;
    return Status::success();
  });
  one.launch([&] {
    --inside;
    return Status::success();
  });
  Graph graph = one.end_capture();
  constexpr int kLaunches = 200;
  std::thread second([&] {
    for (int i = 0; i < kLaunches; ++i) graph.launch(two);
  });
  for (int i = 0; i < kLaunches; ++i) graph.launch(one);
  second.join();
  one.sync();
  two.sync();
  EXPECT_EQ(overlaps, 0);
  EXPECT_EQ(unguarded, 2 * kLaunches);
}

TEST_P(DeviceContract, graph_launched_in_a_capture_becomes_part_of_it) {
  Stream stream = device().stream();
  Stream side = device().stream();
  Event fork(device());
  Event join(device());
  std::atomic<int> inner = 0;
  std::atomic<int> outer = 0;
  std::atomic<int> wrong = 0;
  std::optional<Graph> graph;
  {
    stream.begin_capture();
    stream.record(fork);
    side.wait(fork);
    side.launch(count(inner));
    side.record(join);
    stream.wait(join);
    Graph part = stream.end_capture();
    stream.begin_capture();
    part.launch(stream);
    stream.launch([&] {
      if (inner != 2 * outer + 1) ++wrong;
      return Status::success();
    });
    part.launch(stream);
    stream.launch([&] {
      ++outer;
      if (inner != 2 * outer) ++wrong;
      return Status::success();
    });
    graph.emplace(stream.end_capture());
    EXPECT_EQ(inner, 0);
  }
  for (int i = 0; i < 3; ++i) graph->launch(stream);
  stream.sync();
  EXPECT_EQ(outer, 3);
  EXPECT_EQ(inner, 6);
  EXPECT_EQ(wrong, 0);
}

TEST_P(DeviceContract, graph_failure_skips_the_rest_and_becomes_the_streams) {
  Stream stream = device().stream();
  Stream side = device().stream();
  Event fork(device());
  Event join(device());
  std::atomic<int> before = 0;
  std::atomic<int> after = 0;
  std::atomic<bool> failing = true;
  stream.begin_capture();
  stream.launch(count(before));
  stream.record(fork);
  side.wait(fork);
  side.launch([&] { return failing ? Status{.code = ErrorCode::torn} : Status::success(); });
  side.record(join);
  stream.wait(join);
  stream.launch(count(after));
  Graph graph = stream.end_capture();
  graph.launch(stream);
  graph.launch(stream);
  EXPECT_EQ(code_of([&] { stream.sync(); }), ErrorCode::torn);
  EXPECT_EQ(before, 1);
  EXPECT_EQ(after, 0);
  failing = false;
  graph.launch(stream);
  stream.sync();
  EXPECT_EQ(before, 2);
  EXPECT_EQ(after, 1);
}

TEST_P(DeviceContract, graph_failure_on_one_stream_does_not_reach_the_next_launch_on_another) {
  Stream one = device().stream();
  Stream two = device().stream();
  std::atomic<int> runs = 0;
  one.begin_capture();
  one.launch([&] { return ++runs == 1 ? Status{.code = ErrorCode::torn} : Status::success(); });
  Graph graph = one.end_capture();
  Gate gate;
  one.launch(hold(gate));
  graph.launch(one);
  graph.launch(two);  // behind the first, but only in time
  gate.open();
  EXPECT_EQ(code_of([&] { one.sync(); }), ErrorCode::torn);
  two.sync();
  EXPECT_EQ(runs, 2);
}

TEST_P(DeviceContract, graph_can_be_moved) {
  Stream stream = device().stream();
  std::atomic<int> done = 0;
  stream.begin_capture();
  stream.launch(count(done));
  Graph first = stream.end_capture();
  stream.begin_capture();
  Graph second = stream.end_capture();
  second = std::move(first);
  Graph third = std::move(second);
  third.launch(stream);
  stream.sync();
  EXPECT_EQ(done, 1);
}

}  // namespace tugline::contract

// SPDX-License-Identifier: Apache-2.0
// What the host backend's verbs cost: device_bench [--benchmark_filter=...]. Prints, asserts nothing.
#include <benchmark/benchmark.h>

#include <atomic>
#include <vector>

#include "device/registry.h"

namespace {

using tugline::Device;
using tugline::Event;
using tugline::Graph;
using tugline::Status;
using tugline::Stream;

Status nothing() {
  return Status::success();
}

// A blocking call on an idle stream: what every small blocking collective pays.
void run_idle(benchmark::State& state) {
  Device& device = tugline::device::host_device(0);
  const std::uintptr_t stream = device.default_stream().get();
  int calls = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(device.run(stream, [&] {
      ++calls;
      return Status::success();
    }));
  }
  benchmark::DoNotOptimize(calls);
}
BENCHMARK(run_idle);

// The same from a stream that has a thread, which sleeps.
void run_idle_with_thread(benchmark::State& state) {
  Stream stream(tugline::device::host_device(0));
  stream.launch(nothing);
  stream.sync();
  for (auto _ : state) benchmark::DoNotOptimize(stream.ref().run([] { return Status::success(); }));
}
BENCHMARK(run_idle_with_thread);

void launch_and_sync(benchmark::State& state) {
  Stream stream(tugline::device::host_device(0));
  for (auto _ : state) {
    stream.launch(nothing);
    stream.sync();
  }
}
BENCHMARK(launch_and_sync)->UseRealTime();

// Enqueueing alone, the stream's thread busy behind it; one sync per batch.
void launch_batch(benchmark::State& state) {
  Stream stream(tugline::device::host_device(0));
  const auto batch = state.range(0);
  for (auto _ : state) {
    for (std::int64_t i = 0; i < batch; ++i) stream.launch(nothing);
    stream.sync();
  }
  state.SetItemsProcessed(state.iterations() * batch);
}
BENCHMARK(launch_batch)->Arg(100)->UseRealTime();

void event_record_idle(benchmark::State& state) {
  Stream stream(tugline::device::host_device(0));
  Event event(tugline::device::host_device(0));
  for (auto _ : state) stream.record(event);
}
BENCHMARK(event_record_idle);

// Work goes from one stream's thread to the other's and back.
void event_ping_pong(benchmark::State& state) {
  Stream one(tugline::device::host_device(0));
  Stream two(tugline::device::host_device(0));
  Event there(tugline::device::host_device(0));
  Event back(tugline::device::host_device(0));
  constexpr int kTrips = 50;
  for (auto _ : state) {
    for (int i = 0; i < kTrips; ++i) {
      one.launch(nothing);
      one.record(there);
      two.wait(there);
      two.launch(nothing);
      two.record(back);
      one.wait(back);
    }
    one.sync();
  }
  state.SetItemsProcessed(state.iterations() * kTrips);
}
BENCHMARK(event_ping_pong)->UseRealTime();

void copy_idle(benchmark::State& state) {
  Stream stream(tugline::device::host_device(0));
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<char> from(bytes, 1);
  std::vector<char> to(bytes, 0);
  for (auto _ : state) {
    stream.ref().copy(to.data(), from.data(), bytes);
    stream.sync();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(copy_idle)->Arg(8)->Arg(4096)->Arg(1 << 20)->UseRealTime();

// A graph of `tasks` tasks on one stream, per task.
void graph_replay(benchmark::State& state) {
  Stream stream(tugline::device::host_device(0));
  const auto tasks = state.range(0);
  stream.begin_capture();
  for (std::int64_t i = 0; i < tasks; ++i) stream.launch(nothing);
  Graph graph = stream.end_capture();
  for (auto _ : state) {
    graph.launch(stream);
    stream.sync();
  }
  state.SetItemsProcessed(state.iterations() * tasks);
}
BENCHMARK(graph_replay)->Arg(1)->Arg(100)->UseRealTime();

void graph_replay_forked(benchmark::State& state) {
  Stream stream(tugline::device::host_device(0));
  Stream side(tugline::device::host_device(0));
  Event fork(tugline::device::host_device(0));
  Event join(tugline::device::host_device(0));
  stream.begin_capture();
  stream.record(fork);
  side.wait(fork);
  side.launch(nothing);
  stream.launch(nothing);
  side.record(join);
  stream.wait(join);
  Graph graph = stream.end_capture();
  for (auto _ : state) {
    graph.launch(stream);
    stream.sync();
  }
}
BENCHMARK(graph_replay_forked)->UseRealTime();

void stream_create_and_destroy(benchmark::State& state) {
  for (auto _ : state) Stream stream(tugline::device::host_device(0));
}
BENCHMARK(stream_create_and_destroy);

}  // namespace

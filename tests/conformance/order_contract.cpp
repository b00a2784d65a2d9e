// SPDX-License-Identifier: Apache-2.0
// Order as a property: random programs over several streams, each task checking by a vector clock that all
// work it depends on has run. The same programs are run directly and as captured graphs.
#include <array>
#include <memory>
#include <random>

#include "conformance/contract.h"

namespace tugline::contract {
namespace {

constexpr std::size_t kStreams = 4;
constexpr std::size_t kEvents = 5;
using Clock = std::array<int, kStreams>;

// What the tasks see. Relaxed: the order must come from streams and events, not from these.
struct Observed {
  std::array<std::atomic<int>, kStreams> progress = {};
  std::array<std::atomic<int>, kStreams> base = {};  // tasks of earlier replays
  std::atomic<int> violations = 0;
};

// Enqueues a random program and keeps the model beside it.
class Program {
 public:
  Program(std::vector<Stream>& streams, std::vector<Event>& events, Observed& observed, unsigned seed)
      : streams_(streams), events_(events), observed_(observed), random_(seed) {}

  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      const std::size_t stream = pick(kStreams);
      switch (pick(4)) {
        case 0:
          record(pick(kEvents), stream);
          break;
        case 1:
          wait(pick(kEvents), stream);
          break;
        default:
          task(stream);
      }
    }
  }
  void fork_all() {
    record(0, 0);
    for (std::size_t stream = 1; stream < kStreams; ++stream) wait(0, stream);
  }
  void join_all() {
    for (std::size_t stream = 1; stream < kStreams; ++stream) {
      record(stream, stream);
      wait(stream, 0);
    }
  }
  const Clock& launched() const { return launched_; }

 private:
  std::size_t pick(std::size_t count) { return random_() % count; }
  void task(std::size_t stream) {
    Clock before = known_[stream];
    before[stream] = launched_[stream]++;
    streams_[stream].launch([observed = &observed_, before, stream] {
      for (std::size_t i = 0; i < kStreams; ++i) {
        const int seen = observed->progress[i].load(std::memory_order_relaxed) -
                         observed->base[i].load(std::memory_order_relaxed);
        if (i == stream ? seen != before[i] : seen < before[i]) ++observed->violations;
      }
      observed->progress[stream].fetch_add(1, std::memory_order_relaxed);
      return Status::success();
    });
    known_[stream][stream] = launched_[stream];
  }
  void record(std::size_t event, std::size_t stream) {
    streams_[stream].record(events_[event]);
    recorded_[event] = known_[stream];
  }
  void wait(std::size_t event, std::size_t stream) {
    streams_[stream].wait(events_[event]);
    for (std::size_t i = 0; i < kStreams; ++i) {
      known_[stream][i] = std::max(known_[stream][i], recorded_[event][i]);
    }
  }

  std::vector<Stream>& streams_;
  std::vector<Event>& events_;
  Observed& observed_;
  std::mt19937 random_;
  Clock launched_ = {};
  std::array<Clock, kStreams> known_ = {};
  std::array<Clock, kEvents> recorded_ = {};
};

}  // namespace

TEST_P(DeviceContract, order_of_random_programs_holds) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    Observed observed;
    std::vector<Event> events;
    std::vector<Stream> streams;
    for (std::size_t i = 0; i < kEvents; ++i) events.emplace_back(device());
    for (std::size_t i = 0; i < kStreams; ++i) streams.push_back(device().stream());
    Program program(streams, events, observed, seed);
    program.steps(200);
    for (Stream& stream : streams) stream.sync();
    EXPECT_EQ(observed.violations, 0) << "seed " << seed;
    for (std::size_t i = 0; i < kStreams; ++i) EXPECT_EQ(observed.progress[i], program.launched()[i]);
  }
}

TEST_P(DeviceContract, order_of_random_graphs_holds) {
  constexpr int kReplays = 3;
  for (unsigned seed = 1; seed <= 10; ++seed) {
    Observed observed;
    std::vector<Event> events;
    std::vector<Stream> streams;
    for (std::size_t i = 0; i < kEvents; ++i) events.emplace_back(device());
    for (std::size_t i = 0; i < kStreams; ++i) streams.push_back(device().stream());
    Program program(streams, events, observed, seed);
    streams[0].begin_capture();
    program.fork_all();
    program.steps(120);
    program.join_all();
    Graph graph = streams[0].end_capture();
    EXPECT_EQ(observed.progress[0], 0);
    Stream target = device().stream();
    for (int replay = 0; replay < kReplays; ++replay) {
      graph.launch(target);
      target.launch([&observed] {
        for (std::size_t i = 0; i < kStreams; ++i) observed.base[i].store(observed.progress[i]);
        return Status::success();
      });
    }
    target.sync();
    EXPECT_EQ(observed.violations, 0) << "seed " << seed;
    for (std::size_t i = 0; i < kStreams; ++i) {
      EXPECT_EQ(observed.progress[i], kReplays * program.launched()[i]) << "seed " << seed;
    }
  }
}

TEST_P(DeviceContract, order_holds_while_threads_share_streams_and_events) {
  // Many threads record, wait, launch, run and sync over the same few objects: nothing is lost, nothing
  // hangs.
  constexpr int kThreads = 4;
  constexpr int kSteps = 300;
  std::vector<Event> events;
  std::vector<Stream> streams;
  for (std::size_t i = 0; i < 3; ++i) events.emplace_back(device());
  for (std::size_t i = 0; i < 3; ++i) streams.push_back(device().stream());
  std::atomic<int> done = 0;
  std::atomic<int> launched = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t + 1);
      for (int i = 0; i < kSteps; ++i) {
        Stream& stream = streams[random() % streams.size()];
        Event& event = events[random() % events.size()];
        switch (random() % 6) {
          case 0:
            stream.record(event);
            break;
          case 1:
            stream.wait(event);
            break;
          case 2:
            event.sync();
            break;
          case 3:
            ++launched;
            EXPECT_TRUE(stream.ref().run([&] { return ++done, Status::success(); }).ok());
            break;
          case 4:
            (void)stream.is_done();
            (void)event.is_done();
            break;
          default:
            ++launched;
            stream.launch(count(done));
        }
      }
      for (Stream& stream : streams) stream.sync();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(done, launched);
}

}  // namespace tugline::contract

// SPDX-License-Identifier: Apache-2.0
// What streams and graphs of a GPU do beyond the contract: streams of the caller, streams that end in their
// own task, graphs that are part of others, forked children.
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <thread>

#include "gpu_test.h"

namespace tugline::device::cuda {
namespace {

using CudaStreams = GpuTest;

TEST_F(CudaStreams, streams_of_the_caller_are_accepted) {
  constexpr std::size_t kBytes = 50'000;
  ContextGuard guard(gpu()->context());
  CUstream native = nullptr;
  check(driver().cuStreamCreate(&native, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  const auto number = reinterpret_cast<std::uintptr_t>(native);
  const StreamRef stream = StreamRef::from_native_handle(*gpu(), number);
  EXPECT_EQ(stream, StreamRef::from_native_handle(*gpu(), number));
  EXPECT_EQ(stream.native_handle(), number);
  void* memory = gpu()->allocate(kBytes);
  const auto sent = pattern(kBytes, 7);
  std::atomic<int> done = 0;
  stream.copy(memory, sent.data(), kBytes);
  stream.launch([&done] { return ++done, Status::success(); });
  check(driver().cuStreamSynchronize(native), "cuStreamSynchronize");
  EXPECT_EQ(done, 1);
  EXPECT_EQ(read(memory, kBytes), sent);
  // Captured by its owner: what the device can do alone becomes part of the owner's graph.
  check(driver().cuStreamBeginCapture(native, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
  EXPECT_TRUE(stream.is_capturing());
  stream.fill(memory, 9, kBytes);
  EXPECT_THROW(stream.launch([] { return Status::success(); }), Error);
  CUgraph graph = nullptr;
  check(driver().cuStreamEndCapture(native, &graph), "cuStreamEndCapture");
  EXPECT_FALSE(stream.is_capturing());
  EXPECT_EQ(read(memory, kBytes), sent);
  CUgraphExec executable = nullptr;
  check(driver().cuGraphInstantiateWithFlags(&executable, graph, 0), "cuGraphInstantiateWithFlags");
  check(driver().cuGraphLaunch(executable, native), "cuGraphLaunch");
  stream.sync();
  EXPECT_EQ(read(memory, kBytes), std::vector<std::uint8_t>(kBytes, 9));
  check(driver().cuGraphExecDestroy(executable), "cuGraphExecDestroy");
  check(driver().cuGraphDestroy(graph), "cuGraphDestroy");
  gpu()->deallocate(memory, kBytes);
  check(driver().cuStreamDestroy(native), "cuStreamDestroy");
  EXPECT_THROW((void)StreamRef::from_native_handle(*gpu(), 0), Error);
}

TEST_F(CudaStreams, a_stream_may_end_in_its_own_task) {
  std::atomic<bool> ended = false;
  auto stream = std::make_shared<std::optional<Stream>>(gpu()->stream());
  std::atomic<bool> gate = false;
  (*stream)->launch(held(gate));
  (*stream)->launch([stream, &ended]() mutable {
    stream->reset();
    stream = nullptr;
    ended = true;
    ended.notify_all();
    return Status::success();
  });
  stream = nullptr;
  open_gate(gate);
  ended.wait(false);
}

// The tasks of a part exist once. They would wake each other's nodes if they ran beside themselves.
TEST_F(CudaStreams, a_part_never_runs_beside_itself) {
  std::atomic<int> inside = 0;
  std::atomic<int> overlaps = 0;
  std::atomic<int> runs = 0;
  Stream one = gpu()->stream();
  Stream two = gpu()->stream();
  Stream side = gpu()->stream();
  Event fork(*gpu());
  Event join(*gpu());
  one.begin_capture();
  one.launch([&] {
    if (++inside > 1) ++overlaps;
    std::this_thread::yield();
    ++runs;
    --inside;
    return Status::success();
  });
  Graph part = one.end_capture();
  // Twice in one graph, in two lanes.
  one.begin_capture();
  one.record(fork);
  side.wait(fork);
  part.launch(side);
  part.launch(one);
  side.record(join);
  one.wait(join);
  Graph both = one.end_capture();
  two.begin_capture();
  part.launch(two);
  Graph other = two.end_capture();
  constexpr int kRounds = 50;
  for (int i = 0; i < kRounds; ++i) {
    both.launch(one);
    other.launch(two);
    part.launch(side);
  }
  one.sync();
  two.sync();
  side.sync();
  EXPECT_EQ(overlaps, 0);
  EXPECT_EQ(runs, 4 * kRounds);
}

TEST_F(CudaStreams, a_forked_child_is_told_and_ends_well) {
  auto stream = std::make_unique<Stream>(gpu()->stream());
  auto event = std::make_unique<Event>(*gpu());
  stream->sync();
  const pid_t child = fork();
  if (child == 0) {
    int code = 1;
    try {
      stream->launch([] { return Status::success(); });
    } catch (const Error& error) {
      code = error.code() == ErrorCode::invalid_usage ? 0 : 2;
    }
    stream.reset();
    event.reset();
    _exit(code);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  std::atomic<int> done = 0;
  stream->launch([&done] { return ++done, Status::success(); });
  stream->sync();
  EXPECT_EQ(done, 1);
}

}  // namespace
}  // namespace tugline::device::cuda

// SPDX-License-Identifier: Apache-2.0
// Copies and fills of a GPU's streams: every way between pageable, pinned and device memory, any alignment,
// and nothing moved behind a failure, whether by the copy engine or by a kernel.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "device/cuda/backend.h"
#include "device/cuda/context.h"
#include "device/cuda/pinned.h"

namespace tugline::device::cuda {
namespace {

class CudaMoves : public testing::Test {
 protected:
  static CudaDevice* gpu() {
    static CudaDevice* found = []() -> CudaDevice* {
      try {
        static auto* backend = new CudaBackend;
        return &dynamic_cast<CudaDevice&>(backend->device(0));
      } catch (const Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return nullptr;
      }
    }();
    return found;
  }
  void SetUp() override {
    if (gpu() == nullptr) GTEST_SKIP() << "no GPU (the reason is above)";
  }

  // Tells the stream's failure and clears it.
  static ErrorCode end(Stream& stream) {
    try {
      stream.sync();
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::ok;
  }
  std::vector<std::uint8_t> read(const void* memory, std::size_t bytes) {
    std::vector<std::uint8_t> values(bytes);
    Stream stream = gpu()->stream();
    stream.ref().copy(values.data(), memory, bytes);
    stream.sync();
    return values;
  }
};

std::vector<std::uint8_t> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::uint8_t> values(bytes);
  for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::uint8_t>(i * 131 + i / 251 + seed);
  return values;
}

HostTask held(std::atomic<bool>& open) {
  return [&open] {
    open.wait(false);
    return Status::success();
  };
}
void open_gate(std::atomic<bool>& gate) {
  gate = true;
  gate.notify_all();
}

TEST_F(CudaMoves, pageable_memory_of_several_staging_buffers_arrives_whole) {
  for (std::size_t bytes : {kStagingBytes - 1, kStagingBytes, 2 * kStagingBytes + 12345}) {
    void* memory = gpu()->allocate(bytes);
    const auto sent = pattern(bytes, 3);
    Stream stream = gpu()->stream();
    stream.ref().copy(memory, sent.data(), bytes);
    stream.sync();
    EXPECT_EQ(read(memory, bytes), sent);
    gpu()->deallocate(memory, bytes);
  }
}

TEST_F(CudaMoves, kernels_and_engine_move_the_same_bytes_at_any_alignment) {
  constexpr std::size_t kBytes = 300'000;
  auto* from = static_cast<std::uint8_t*>(gpu()->allocate(kBytes));
  auto* to = static_cast<std::uint8_t*>(gpu()->allocate(kBytes));
  const auto sent = pattern(kBytes, 5);
  Stream stream = gpu()->stream();
  stream.ref().copy(from, sent.data(), kBytes);
  stream.sync();
  for (const bool guarded : {false, true}) {
    for (std::size_t shift : {0, 1, 15, 16}) {
      for (std::size_t bytes :
           {std::size_t{1}, std::size_t{15}, std::size_t{33}, std::size_t{4097}, std::size_t{250'003}}) {
        stream.ref().fill(to, 0xee, kBytes);
        stream.sync();
        std::atomic<bool> gate = false;
        if (guarded) stream.launch(held(gate));  // may fail as far as the stream knows
        stream.ref().copy(to + shift, from + 2 * shift, bytes);
        stream.ref().fill(to + shift + bytes, 0x11, 7);
        open_gate(gate);
        EXPECT_EQ(end(stream), ErrorCode::ok);
        auto want = std::vector<std::uint8_t>(kBytes, 0xee);
        std::memcpy(want.data() + shift, sent.data() + 2 * shift, bytes);
        std::memset(want.data() + shift + bytes, 0x11, 7);
        ASSERT_EQ(read(to, kBytes), want)
            << "guarded " << guarded << ", shift " << shift << ", bytes " << bytes;
      }
    }
  }
  gpu()->deallocate(from, kBytes);
  gpu()->deallocate(to, kBytes);
}

TEST_F(CudaMoves, nothing_moves_behind_a_failure) {
  constexpr std::size_t kBytes = 100'000;
  void* memory = gpu()->allocate(kBytes);
  void* other = gpu()->allocate(kBytes);
  Stream stream = gpu()->stream();
  stream.ref().fill(memory, 1, kBytes);
  stream.ref().fill(other, 2, kBytes);
  stream.sync();
  const auto ones = read(memory, kBytes);
  for (const bool failed_already : {false, true}) {
    std::atomic<bool> gate = failed_already;
    stream.launch([&gate] {
      gate.wait(false);
      return Status{.code = ErrorCode::torn};
    });
    if (failed_already) {
      while (stream.ref().status().ok()) std::this_thread::yield();
    }
    stream.ref().copy(memory, other, kBytes);
    stream.ref().fill(memory, 3, kBytes);
    const auto pageable = pattern(kBytes, 9);
    stream.ref().copy(memory, pageable.data(), kBytes);
    std::vector<std::uint8_t> target(kBytes, 77);
    stream.ref().copy(target.data(), other, kBytes);
    open_gate(gate);
    EXPECT_EQ(end(stream), ErrorCode::torn);
    EXPECT_EQ(read(memory, kBytes), ones);
    EXPECT_EQ(target, std::vector<std::uint8_t>(kBytes, 77));
  }
  stream.ref().copy(memory, other, kBytes);
  stream.sync();
  EXPECT_EQ(read(memory, kBytes), std::vector<std::uint8_t>(kBytes, 2));
  gpu()->deallocate(memory, kBytes);
  gpu()->deallocate(other, kBytes);
}

TEST_F(CudaMoves, a_graph_behind_a_failure_moves_nothing_and_the_next_launch_does) {
  constexpr std::size_t kBytes = 100'000;
  void* memory = gpu()->allocate(kBytes);
  void* other = gpu()->allocate(kBytes);
  Stream stream = gpu()->stream();
  Stream second = gpu()->stream();
  stream.ref().fill(memory, 1, kBytes);
  stream.ref().fill(other, 2, kBytes);
  stream.sync();
  stream.begin_capture();
  stream.ref().copy(memory, other, kBytes);
  Graph graph = stream.end_capture();
  std::atomic<bool> gate = false;
  stream.launch([&gate] {
    gate.wait(false);
    return Status{.code = ErrorCode::torn};
  });
  graph.launch(stream);
  open_gate(gate);
  EXPECT_EQ(end(stream), ErrorCode::torn);
  EXPECT_EQ(read(memory, kBytes), std::vector<std::uint8_t>(kBytes, 1));
  graph.launch(second);
  second.sync();
  EXPECT_EQ(read(memory, kBytes), std::vector<std::uint8_t>(kBytes, 2));
  gpu()->deallocate(memory, kBytes);
  gpu()->deallocate(other, kBytes);
}

TEST_F(CudaMoves, streams_of_the_caller_are_accepted) {
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

// A stream whose tasks fail again and again, with copies of other threads in between, holds no more memory of
// the pool than at first.
TEST_F(CudaMoves, cells_and_staging_come_back) {
  constexpr std::size_t kBytes = 5000;
  void* memory = gpu()->allocate(kBytes);
  ContextGuard guard(gpu()->context());
  const auto sent = pattern(kBytes, 1);
  const auto round = [&] {
    Stream stream = gpu()->stream();
    for (int i = 0; i < 5; ++i) {
      stream.ref().copy(memory, sent.data(), kBytes);
      stream.launch([] { return Status{.code = ErrorCode::torn}; });
      EXPECT_EQ(end(stream), ErrorCode::torn);
    }
    stream.sync();
  };
  round();
  const PinnedUse before = pinned_use();
  for (int i = 0; i < 20; ++i) round();
  const PinnedUse after = pinned_use();
  EXPECT_EQ(after.cells, before.cells);
  EXPECT_EQ(after.staging, before.staging);
  EXPECT_EQ(after.pinned_bytes, before.pinned_bytes);
  gpu()->deallocate(memory, kBytes);
}

}  // namespace
}  // namespace tugline::device::cuda

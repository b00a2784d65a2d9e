// SPDX-License-Identifier: Apache-2.0
// Copies and fills of a GPU's streams: every way between pageable, pinned and device memory, any alignment,
// and nothing moved behind a failure, whether by the copy engine or by a kernel.
#include <cstring>
#include <thread>

#include "device/cuda/pinned.h"
#include "gpu_test.h"

namespace tugline::device::cuda {
namespace {

using CudaMoves = GpuTest;

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

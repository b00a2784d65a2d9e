// SPDX-License-Identifier: Apache-2.0
// What tests on a GPU share: the device, or the reason why the test is skipped.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "device/cuda/backend.h"
#include "device/cuda/context.h"

namespace tugline::device::cuda {

class GpuTest : public testing::Test {
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
  static std::vector<std::uint8_t> read(const void* memory, std::size_t bytes) {
    std::vector<std::uint8_t> values(bytes);
    Stream stream = gpu()->stream();
    stream.ref().copy(values.data(), memory, bytes);
    stream.sync();
    return values;
  }
};

inline std::vector<std::uint8_t> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::uint8_t> values(bytes);
  for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::uint8_t>(i * 131 + i / 251 + seed);
  return values;
}

inline HostTask held(std::atomic<bool>& open) {
  return [&open] {
    open.wait(false);
    return Status::success();
  };
}
inline void open_gate(std::atomic<bool>& gate) {
  gate = true;
  gate.notify_all();
}

}  // namespace tugline::device::cuda

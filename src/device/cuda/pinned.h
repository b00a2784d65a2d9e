// SPDX-License-Identifier: Apache-2.0
// Pinned host memory that every device can reach: cells of one cache line for flags, and staging buffers for
// copies of pageable memory. Both come from pools that keep what was once pinned: pinning costs a hundred
// microseconds and may wait for the device.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/cuda/driver.h"

namespace tugline::device::cuda {

/// One cache line of pinned memory. The device reads and writes it at the same address.
struct alignas(64) Cell {
  std::atomic<std::uint64_t> word{0};
};
static_assert(sizeof(Cell) == 64);

inline CUdeviceptr device_address(const std::atomic<std::uint64_t>& word) noexcept {
  return reinterpret_cast<CUdeviceptr>(&word);
}

/// A cell for as long as it is referred to; its word is 0 in the beginning. Needs a current context.
/// Throws Error{out_of_memory}. Thread-safe.
std::shared_ptr<Cell> make_cell();

/// Bytes of a staging buffer.
constexpr std::size_t kStagingBytes = std::size_t{4} << 20;
/// A staging buffer for as long as it is referred to. Needs a current context. Throws Error{out_of_memory}.
/// Thread-safe.
std::shared_ptr<std::byte> make_staging();

/// What is taken of the pools now, and how much memory they have pinned.
struct PinnedUse {
  std::size_t cells = 0;
  std::size_t staging = 0;
  std::size_t pinned_bytes = 0;
};
PinnedUse pinned_use();

}  // namespace tugline::device::cuda

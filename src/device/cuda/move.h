// SPDX-License-Identifier: Apache-2.0
// Copies and fills of a CUDA stream: which way the bytes go, and kernels that move them unless the stream has
// failed by then.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda/driver.h"

namespace tugline::device::cuda {

/// A copy, or a fill where `source` is null.
struct Move {
  void* destination = nullptr;
  const void* source = nullptr;
  std::size_t bytes = 0;
  std::uint8_t value = 0;
};

/// True if the device can reach the address: its own or another device's memory, or pinned host memory.
/// Pageable host memory is reached by the host alone.
bool is_reachable(const void* address);

/// Enqueues the move of memory that the device can reach.
CUresult enqueue_move(CUstream stream, const Move& move);
/// The same by a kernel that does nothing once *failed_at < ticket; `failed_at` lies in pinned memory.
CUresult enqueue_guarded_move(CUstream stream, const Move& move, CUdeviceptr failed_at, std::uint64_t ticket);

}  // namespace tugline::device::cuda

// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/move.h"

#include <algorithm>

#include "device/cuda/kernels.h"

namespace tugline::device::cuda {
namespace {

// Enough to reach the memory's bandwidth on every device so far; a kernel takes more turns beyond.
constexpr unsigned kThreads = 512;
constexpr unsigned kMostBlocks = 256;
constexpr std::size_t kBytesPerThread = 64;

CUdeviceptr address_of(const void* pointer) noexcept {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

}  // namespace

bool is_reachable(const void* address) {
  // The plural form takes an address that CUDA does not know for an answer, not for an error.
  CUmemorytype type{};
  CUpointer_attribute asked = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  void* answer = &type;
  check(driver().cuPointerGetAttributes(1, &asked, &answer, address_of(address)), "look-up of an address");
  return type != CUmemorytype{};
}

CUresult enqueue_move(CUstream stream, const Move& move) {
  if (move.source != nullptr)
    return driver().cuMemcpyAsync(address_of(move.destination), address_of(move.source), move.bytes, stream);
  return driver().cuMemsetD8Async(address_of(move.destination), move.value, move.bytes, stream);
}

CUresult enqueue_guarded_move(CUstream stream, const Move& move, CUdeviceptr failed_at,
                              std::uint64_t ticket) {
  CUfunction kernel = kernel_function(move.source != nullptr ? Kernel::guarded_copy : Kernel::guarded_fill);
  CUdeviceptr to = address_of(move.destination);
  CUdeviceptr from = address_of(move.source);
  unsigned value = move.value;
  std::uint64_t bytes = move.bytes;
  void* copy_arguments[] = {&to, &from, &bytes, &failed_at, &ticket};
  void* fill_arguments[] = {&to, &value, &bytes, &failed_at, &ticket};
  const std::size_t per_block = kThreads * kBytesPerThread;
  const auto blocks = static_cast<unsigned>(
      std::clamp<std::size_t>((move.bytes + per_block - 1) / per_block, 1, kMostBlocks));
  return driver().cuLaunchKernel(kernel, blocks, 1, 1, kThreads, 1, 1, 0, stream,
                                 move.source != nullptr ? copy_arguments : fill_arguments, nullptr);
}

}  // namespace tugline::device::cuda

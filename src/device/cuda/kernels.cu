// SPDX-License-Identifier: Apache-2.0
// Kernels of the device backend. Each is one pass over memory that does nothing once the stream has failed
// before it.
#include <cstdint>

namespace {

// One thread of a block asks for all: the word lies in host memory, a microsecond away.
__device__ bool is_skipped(const std::uint64_t* failed_at, std::uint64_t ticket) {
  __shared__ bool skipped;
  if (threadIdx.x == 0) skipped = *reinterpret_cast<const volatile std::uint64_t*>(failed_at) < ticket;
  __syncthreads();
  return skipped;
}

__device__ std::uint64_t first_index() {
  return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ std::uint64_t all_threads() {
  return std::uint64_t{gridDim.x} * blockDim.x;
}

}  // namespace

extern "C" __global__ void tugline_guarded_copy(unsigned char* to, const unsigned char* from,
                                                std::uint64_t bytes, const std::uint64_t* failed_at,
                                                std::uint64_t ticket) {
  if (is_skipped(failed_at, ticket)) return;
  const bool aligned =
      (reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % 16 == 0;
  const std::uint64_t wide = aligned ? bytes / 16 : 0;
  for (std::uint64_t i = first_index(); i < wide; i += all_threads())
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  for (std::uint64_t i = wide * 16 + first_index(); i < bytes; i += all_threads()) to[i] = from[i];
}

extern "C" __global__ void tugline_guarded_fill(unsigned char* to, unsigned value, std::uint64_t bytes,
                                                const std::uint64_t* failed_at, std::uint64_t ticket) {
  if (is_skipped(failed_at, ticket)) return;
  const unsigned word = value * 0x01010101u;
  const std::uint64_t wide = reinterpret_cast<std::uintptr_t>(to) % 16 == 0 ? bytes / 16 : 0;
  for (std::uint64_t i = first_index(); i < wide; i += all_threads())
    reinterpret_cast<uint4*>(to)[i] = make_uint4(word, word, word, word);
  for (std::uint64_t i = wide * 16 + first_index(); i < bytes; i += all_threads())
    to[i] = static_cast<unsigned char>(value);
}

// SPDX-License-Identifier: Apache-2.0
// A record ring is read out of memory that another process writes: whatever it holds, the reader stays
// inside.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/record.h"
#include "tugline/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  // An allocation of exactly this size: reading past it is an error that AddressSanitizer sees.
  const std::size_t rounded = (bytes + 63) / 64 * 64 + 64;
  const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(64, rounded), &std::free);
  std::memset(memory.get(), 0, rounded);
  if (bytes > 0) std::memcpy(memory.get(), data, bytes);
  try {
    const tugline::base::RecordReader reader(memory.get(), rounded);
    if (reader.last(SIZE_MAX).size() > reader.capacity()) std::abort();
    (void)reader.read(UINT64_MAX);
  } catch (const tugline::Error& error) {
    if (error.code() != tugline::ErrorCode::protocol) throw;
  }
  return 0;
}

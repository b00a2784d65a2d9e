// SPDX-License-Identifier: Apache-2.0
// Memory of every kind that a collective may work on, allocated, used again and freed as the soak goes.
#pragma once

#include <cstddef>
#include <memory>
#include <variant>
#include <vector>

#include "soak/draw.h"
#include "tugline/job.h"

namespace tugline::soak {

enum class MemoryKind : std::uint8_t { plain, library, pool, registered };
inline constexpr int kMemoryKinds = 4;

class Memory {
 public:
  Memory(MemoryKind kind, std::size_t bytes, Job& job, StreamRef stream);
  MemoryKind kind() const noexcept { return static_cast<MemoryKind>(owner_.index()); }
  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  // Pages of its own: malloc's would be split off from their neighbours for good, which counts as mappings.
  struct Unmap {
    void operator()(std::byte* memory) const noexcept;
    std::size_t bytes;
  };
  struct Registered {
    std::unique_ptr<std::byte, Unmap> memory;
    RegisteredMemory registration;  ///< goes before the memory
  };
  std::size_t bytes_;
  std::variant<std::unique_ptr<std::byte[]>, Buffer<std::uint8_t>, PoolBuffer<std::uint8_t>, Registered>
      owner_;
  std::byte* data_ = nullptr;
};

/// The memory of one thread of the soak. Not thread-safe.
class Shelf {
 public:
  Shelf(Job& job, StreamRef stream) : job_(job), stream_(stream) {}

  /// Of a kind drawn from `random`; free memory is used again most often. Used as long as a copy of the
  /// pointer lives.
  std::shared_ptr<Memory> take(Sequence& random, std::size_t bytes);

 private:
  Job& job_;
  StreamRef stream_;
  std::vector<std::shared_ptr<Memory>> kept_;
};

}  // namespace tugline::soak

// SPDX-License-Identifier: Apache-2.0
// What a rank tells whoever watches it, in a file that both have mapped: where it is at this moment, still
// readable after it was killed. The words' order is known to scripts/chaos.
#pragma once

#include <atomic>
#include <cstdint>

namespace tugline::process {

enum class Place : std::uint64_t { starting, joining, joined, has_communicator, in_loop, ended };

struct Monitor {
  std::atomic<std::uint64_t> pid;
  std::atomic<std::uint64_t> place;
  std::atomic<std::uint64_t> step;
  std::atomic<std::uint64_t> operations_entered;
  std::atomic<std::uint64_t> operations_left;
  std::atomic<std::uint64_t> agreements_entered;
  std::atomic<std::uint64_t> agreements_left;

  void at(Place where) noexcept { place.store(static_cast<std::uint64_t>(where)); }
};

/// Counts a stay in an operation or agreement.
class Stay {
 public:
  Stay(std::atomic<std::uint64_t>& entered, std::atomic<std::uint64_t>& left) noexcept : left_(left) {
    entered.fetch_add(1);
  }
  ~Stay() { left_.fetch_add(1); }
  Stay(const Stay&) = delete;
  Stay& operator=(const Stay&) = delete;

 private:
  std::atomic<std::uint64_t>& left_;
};

/// Maps the file, which has to exist; never unmapped. Without a path: private memory.
Monitor& map_monitor(const char* path);

}  // namespace tugline::process

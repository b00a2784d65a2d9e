// SPDX-License-Identifier: Apache-2.0
// Whether every rank has a core of its own, so that it may spin while it waits. A rank cannot tell from its
// own affinity: bound ranks see one core each, unbound ones all. The union of all ranks' cores tells.
#include <sched.h>

#include <bit>

#include "comm/state.h"

namespace tugline::comm {

void CommunicatorState::publish_cores(Board& board) noexcept {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  auto& cores = board.cores[identity_.rank];
  // A machine of more than CPU_SETSIZE cores refuses the call; then nobody spins.
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return;
  for (std::size_t word = 0; word < CoreSet::kWords; ++word) {
    std::uint64_t bits = 0;
    for (std::size_t bit = 0; bit < 64; ++bit)
      if (CPU_ISSET(word * 64 + bit, &mask)) bits |= std::uint64_t{1} << bit;
    cores.words[word].store(bits, std::memory_order_relaxed);
  }
}

void CommunicatorState::decide_how_to_wait() noexcept {
  std::uint64_t all[CoreSet::kWords] = {};
  for (std::uint32_t rank = 0; rank < identity_.size; ++rank) {
    if (board().members[rank].load(std::memory_order_acquire) == 0) return;  // not all are here: later
    for (std::size_t word = 0; word < CoreSet::kWords; ++word)
      all[word] |= board().cores[rank].words[word].load(std::memory_order_relaxed);
  }
  int cores = 0;
  for (const auto word : all) cores += std::popcount(word);
  place_.own_core = cores >= static_cast<int>(identity_.size);
  waiting_decided_ = true;
}

}  // namespace tugline::comm

// SPDX-License-Identifier: Apache-2.0
// What a rank says of the cores it may run on, and whether every rank has one of its own, so that it may spin
// while it waits. A rank cannot tell from its own affinity: bound ranks see one core each, unbound ones all.
// The union of all ranks' cores tells.
#include <sched.h>
#include <unistd.h>

#include <vector>

#include "comm/machine.h"
#include "comm/state.h"
#include "topology/machine.h"

namespace tugline::comm {

void CommunicatorState::publish_cores(Board& board) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  auto& cores = board.cores[identity_.rank];
  // A machine of more than CPU_SETSIZE cores refuses the call; then nobody spins.
  const bool known = sched_getaffinity(0, sizeof(mask), &mask) == 0;
  std::vector<int> processors;
  for (std::size_t word = 0; known && word < CoreSet::kWords; ++word) {
    std::uint64_t bits = 0;
    for (std::size_t bit = 0; bit < 64; ++bit) {
      if (!CPU_ISSET(word * 64 + bit, &mask)) continue;
      bits |= std::uint64_t{1} << bit;
      processors.push_back(static_cast<int>(word * 64 + bit));
    }
    cores.words[word].store(bits, std::memory_order_relaxed);
  }
  // Two ranks have no groups. A rank that may run anywhere is near to nobody, which needs no topology.
  const bool anywhere = static_cast<long>(processors.size()) >= ::sysconf(_SC_NPROCESSORS_ONLN);
  if (identity_.size > 2 && !identity_.locality && !anywhere)
    identity_.locality = topology::locality_of(topology::this_machine(), processors);
  board.localities[identity_.rank].store(packed(identity_.locality.value_or(topology::Locality{})),
                                         std::memory_order_relaxed);
}

void CommunicatorState::decide_how_to_wait() noexcept {
  const auto& originals = epoch_->originals;
  for (const auto original : originals)
    if (board().members[original].load(std::memory_order_acquire) == 0) return;  // not all are here: later
  place_.own_core = count_cores(board(), originals) >= static_cast<int>(originals.size());
  waiting_decided_ = true;
}

const core::CostModel* CommunicatorState::machine(Epoch& epoch) const {
  if (epoch.machine) return &*epoch.machine;
  const auto& board = epoch.board->get();
  for (const auto original : epoch.originals)
    if (board.members[original].load(std::memory_order_acquire) == 0) return nullptr;
  return &epoch.machine.emplace(machine_of(board, epoch.originals));
}

}  // namespace tugline::comm

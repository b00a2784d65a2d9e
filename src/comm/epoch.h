// SPDX-License-Identifier: Apache-2.0
// One epoch of a communicator as its rank sees it: the members, the bank, and how far operations have come.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "broker/client.h"
#include "comm/bank.h"
#include "core/control.h"
#include "tugline/error.h"

namespace tugline::comm {

struct Epoch {
  Epoch(Bank bank_in, std::uint64_t generation_in, std::uint32_t rank_in,
        std::vector<std::uint32_t> originals_in)
      : bank(std::move(bank_in)),
        generation(generation_in),
        rank(rank_in),
        size(static_cast<std::uint32_t>(originals_in.size())),
        originals(std::move(originals_in)),
        pair_sent(size),
        pair_received(size) {}

  Bank bank;
  broker::SegmentId segment = 0;
  std::uint64_t generation;  ///< grows with every decision that ends an epoch
  std::uint32_t rank;        ///< mine, in this epoch
  std::uint32_t size;
  std::vector<std::uint32_t> originals;  ///< original rank by rank

  std::uint64_t sequence = 0;        ///< of the last collective operation begun here
  std::uint64_t known_finished = 0;  ///< every rank is known to have finished this many collective operations
  std::vector<std::uint64_t> pair_sent;      ///< messages sent to each rank
  std::vector<std::uint64_t> pair_received;  ///< messages received from each rank
};

/// What a rank waits to finish: decides whose absence matters.
struct Pending {
  std::uint64_t sequence = 0;  ///< of a collective operation; 0: none
  std::int32_t peer = -1;      ///< of a message; -1: none
};

/// What a wait is for, to report it.
struct WaitSubject {
  const char* what = "";   ///< "packet", "flag", "progress", "agreement"
  std::int32_t peer = -1;  ///< rank of the epoch, -1: several
  std::uint64_t sequence = 0;
  std::uint64_t expected = 0;
  const std::atomic<std::uint64_t>* seen = nullptr;
};

}  // namespace tugline::comm

// SPDX-License-Identifier: Apache-2.0
// One epoch of a communicator as its rank sees it: the members, the bank, and how far operations have come.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/settings.h"
#include "base/shared_memory.h"
#include "comm/bank.h"
#include "comm/channel.h"
#include "core/control.h"
#include "core/plan/cost.h"
#include "memory/allocation.h"
#include "tugline/error.h"

namespace tugline::comm {

/// A communicator's board as mapped by this rank.
struct MappedBoard {
  memory::SegmentReference reference;
  base::Mapping mapping;

  Board& get() const noexcept { return *static_cast<Board*>(mapping.data()); }
};

/// Names an epoch alike on all its ranks. Only decisions that all survivors obey count: those of the
/// communicator itself, and those of the ones it was split from, which begin its own count anew, since not
/// everybody may have heard of an agreement of its own that an ancestor's has overtaken.
struct EpochId {
  std::string path;  ///< "2": after two own decisions; "2.0": of a child that began in or after it
  std::uint64_t generation = 0;  ///< grows from one to the next: the parent's << 16 | own decisions
};

struct Epoch {
  Epoch(std::shared_ptr<const MappedBoard> board_in, memory::SegmentReference bank_reference_in, Bank bank_in,
        EpochId id_in, std::uint32_t rank_in, std::vector<std::uint32_t> originals_in)
      : board(std::move(board_in)),
        bank_reference(std::move(bank_reference_in)),
        bank(std::move(bank_in)),
        path(std::move(id_in.path)),
        generation(id_in.generation),
        rank(rank_in),
        size(static_cast<std::uint32_t>(originals_in.size())),
        originals(std::move(originals_in)) {
    channels.reserve(size);
    for (std::uint32_t peer = 0; peer < size; ++peer) channels.emplace_back(bank, rank, peer);
  }

  std::shared_ptr<const MappedBoard> board;  ///< outlives epochs that end by the communicator's own decision
  memory::SegmentReference bank_reference;
  Bank bank;
  std::string path;  ///< see EpochId
  std::uint64_t generation;
  std::uint32_t rank;  ///< mine, in this epoch
  std::uint32_t size;
  std::vector<std::uint32_t> originals;  ///< original rank by rank

  std::optional<core::CostModel> machine;  ///< where all ranks run; none: not all have come yet
  std::optional<bool> one_process;  ///< all ranks are threads of this process; none: not all have come yet

  std::uint64_t sequence = 0;  ///< of the last collective operation begun here
  /// By scratch half, of two ranks: the next operation finds their scratch exchanged. Alike on both, for both
  /// run the same plans; see Plan::trades_scratch.
  std::array<bool, kHalves> traded = {};
  /// Every rank is known to have begun this operation, after the same calls as this rank: so all have
  /// finished the one before.
  std::uint64_t known_called = 0;
  const bool check = base::settings().check;         ///< calls that differ are errors
  std::array<std::uint64_t, kHistory> history = {};  ///< by sequence number: hash over the calls up to it
  std::vector<Channel> channels;                     ///< messages to and from each rank
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
  Descriptor call;          ///< this rank's own; nothing when it is none
  std::int8_t message = 0;  ///< of a message: 1 it is sent, -1 it is received
};

}  // namespace tugline::comm

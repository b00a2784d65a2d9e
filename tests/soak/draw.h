// SPDX-License-Identifier: Apache-2.0
// What an operation is: drawn from a seed, the same at all ranks, so that nobody has to be asked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "process/inputs.h"
#include "tugline/types.h"

namespace tugline::soak {

using process::Sequence;

enum class Kind : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  reduce,
  gather,
  scatter,
  broadcast,
  all_to_all,
  all_gather_v,
  reduce_scatter_v,
  all_to_all_v,
  barrier,
  message,  ///< from `root` to `peer`, outside of a group
  shift,    ///< in a group: every rank sends to the one `peer` behind it
};
inline constexpr int kCollectiveKinds = 12;

struct Draw {
  Kind kind = Kind::barrier;
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  bool pre_multiplied = false;
  bool symmetric = false;  ///< all_to_all_v: blocks between two ranks are alike both ways
  std::size_t count = 0;   ///< elements of a block; of the _v kinds, of the largest one
  int root = 0;
  int peer = 0;
  std::uint64_t salt = 0;  ///< of the contents
};

/// A sequence for one thing of a soak: of its seed and whatever numbers it is known by.
Sequence sequence_of(std::uint64_t seed, std::initializer_list<std::uint64_t> numbers) noexcept;

/// Any collective or, with more than one rank, message. Blocks are small most often, at most `most_bytes`.
Draw draw_operation(Sequence& random, int ranks, std::size_t most_bytes);
/// A shift for a group.
Draw draw_shift(Sequence& random, int ranks, std::size_t most_bytes);

std::string to_text(const Draw& draw);

/// Elements of a rank's block of all_gather_v and reduce_scatter_v.
std::size_t block_count(const Draw& draw, int rank) noexcept;
/// Elements of the block that all_to_all_v moves.
std::size_t block_count(const Draw& draw, int from, int to) noexcept;

/// The factor of a rank's contribution to a pre-multiplied sum; an integer that every type holds.
int factor_of(const Draw& draw, int rank) noexcept;

}  // namespace tugline::soak

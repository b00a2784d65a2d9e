// SPDX-License-Identifier: Apache-2.0
// A collective as data. A Plan lists, for every rank and channel, the steps that an executor carries out
// one after the other; executors contain no algorithm. Builders (builders.h) are pure functions that make
// plans, the checker (checker.h) proves them, the cost model (cost.h) prices them, print.h shows them and
// reads and writes the hand-written form of `tugline bench --plan`.
//
// What an executor must do, beyond the steps:
//   - A rank's flags start each operation at 0: give every operation a base of its own, above all values of
//     the operations before it. Signal releases, wait acquires; so does a packet.
//   - A rank's own packet is the payload as it was put: an in-place plan overwrites its source before it
//   reads
//     its own packet.
//   - Plans do not end with a barrier. A peer may still read this rank's scratch (its packet) after this
//     rank's program has ended, so scratch is written in operation s+1 only once every rank has finished the
//     last operation that used the same bytes of scratch (the same packet slot).
//   - copy's ranges never overlap; a reduce may have the same range as destination and as operands, never a
//     partly overlapping one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tugline/types.h"

namespace tugline::core {

enum class Collective : std::uint8_t {
  barrier,
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all,
  send_recv,  ///< point to point: plan rank 0 sends, plan rank 1 receives
  reduce,
  gather,
  scatter,
  all_gather_v,      ///< as all_gather, each rank with a block of its own size
  reduce_scatter_v,  ///< as reduce_scatter, likewise
  all_to_all_v,      ///< as all_to_all, each pair with a block of its own size
};
inline constexpr int kCollectiveCount = 13;
std::string_view name_of(Collective collective) noexcept;
/// True when contributions are combined by an operator.
constexpr bool reduces(Collective collective) noexcept {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce_scatter_v || collective == Collective::reduce;
}
/// True when one rank is the only one that has the input, or that gets the output.
constexpr bool has_root(Collective collective) noexcept {
  return collective == Collective::broadcast || collective == Collective::reduce ||
         collective == Collective::gather || collective == Collective::scatter;
}

/// True when the ranks' blocks differ in size: Plan::blocks says how.
constexpr bool has_blocks(Collective collective) noexcept {
  return collective == Collective::all_gather_v || collective == Collective::reduce_scatter_v ||
         collective == Collective::all_to_all_v;
}

/// Address spaces of a rank. `input` and `output` are the caller's buffers and only the rank itself may
/// touch them; `scratch` belongs to the library: on a host every rank may read every rank's scratch, on
/// GPUs a rank writes to a peer's (put) and reads its own.
enum class Space : std::uint8_t { input, output, scratch };
inline constexpr int kSpaceCount = 3;
std::string_view name_of(Space space) noexcept;

/// A byte range of one rank. For `input` and `output` the rank must be the executing one.
struct Place {
  Space space = Space::input;
  std::int32_t rank = 0;
  std::uint64_t offset = 0;  ///< bytes from the start of that space

  friend bool operator==(const Place&, const Place&) = default;
};

enum class StepKind : std::uint8_t {
  copy,         ///< destination = source, `bytes` long; destination is the executing rank's own space
  reduce,       ///< destination = source op second op more[0] ... (in this order), element-wise, all operands
                ///< read before the destination is written; destination own space
  put,          ///< like copy, but the destination is another rank's scratch, or output in a direct plan
  scale,        ///< destination = destination / ranks; only for avg, only after all contributions
  put_packet,   ///< publish `bytes` (at most packet_bytes()) from source to every rank, flag in the data
  copy_packet,  ///< wait for `peer`'s packet, then destination = `bytes` of payload from `source.offset` on
  reduce_packet,  ///< wait for `peer`'s packet, then destination = destination op payload, likewise; peer
                  ///< kEveryone: wait for all, then destination = payload of rank 0 op payload of rank 1 ...
  signal,         ///< release: raise flag (peer, flag) to `value`; peer kEveryone raises it at all others
  wait,           ///< acquire: wait until the flag that `peer` raises here reaches `value`
};
inline constexpr int kStepKindCount = 9;
std::string_view name_of(StepKind kind) noexcept;

inline constexpr std::int32_t kEveryone = -1;
/// Ranks a plan may have.
inline constexpr std::int32_t kMaxPlanRanks = 256;
/// Payload of a packet among `ranks`: each reads everybody's, so all together stay small. The least is what
/// lies in one cache line with its flag.
constexpr std::uint64_t packet_bytes(std::int32_t ranks) noexcept {
  return static_cast<std::uint64_t>(std::clamp((8 << 10) / std::max(ranks, 1), 56, 1024));
}
/// Flags per ordered pair of ranks; a flag starts each operation at 0 and only grows within it.
inline constexpr std::uint32_t kFlagsPerPair = 7;
/// Largest value of a flag within one operation: executors count operations in the bits above.
inline constexpr std::uint32_t kMaxFlagValue = (1u << 20) - 1;

struct Step {
  StepKind kind = StepKind::copy;
  std::uint8_t flag = 0;    ///< signal, wait
  std::int32_t peer = 0;    ///< signal, wait, copy_packet, reduce_packet
  std::uint32_t value = 0;  ///< signal, wait
  std::uint64_t bytes = 0;  ///< copy, reduce, put, scale, put_packet, ...
  Place destination = {};
  Place source =
      {};  ///< reduce: left operand; copy_packet, reduce_packet: `offset` into the payload of `peer`
  Place second = {};  ///< reduce: right operand
  std::vector<Place> more =
      {};  ///< reduce: operands behind `second`; f16 and bf16 are rounded once, at the end

  friend bool operator==(const Step&, const Step&) = default;
};

/// Order in which contributions are combined. Two plans of one class give bit-identical results.
enum class ReductionOrder : std::uint8_t {
  none,             ///< nothing is reduced
  rank_order,       ///< ((r0 op r1) op r2) ... for every element
  ring_order,       ///< as rank_order, but element block b starts at rank (b+1) mod n
  other,            ///< hand-written
  tree_order,       ///< of reduce: as a binomial tree from the root combines, see ExpressionPool::tree_total
  recursive_order,  ///< of all_reduce: as recursive doubling combines, see ExpressionPool::recursive_total
  group_order,      ///< rank_order within each of Plan::groups, then the groups' totals in the order of the
                    ///< groups
};
inline constexpr int kReductionOrderCount = 7;
std::string_view name_of(ReductionOrder order) noexcept;

/// A contiguous part of a buffer.
struct ByteRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t bytes() const noexcept { return end - begin; }
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};
/// Block `index` of `count` of a buffer: what two_shot and ring give each rank of an all_reduce. Boundaries
/// fall on elements, and on cache lines where there are enough of them; blocks differ by at most one such
/// unit and the tail.
ByteRange block_of(std::uint64_t bytes, std::uint64_t element_bytes, std::int32_t count,
                   std::int32_t index) noexcept;

/// The steps of one rank on one channel, run in order. Channels of a rank run concurrently or in turn;
/// only flags order them against each other.
using Program = std::vector<Step>;

struct Plan {
  std::string name;  ///< the builder's, or the file's
  Collective collective = Collective::barrier;
  std::int32_t ranks = 1;
  std::int32_t root = 0;            ///< of collectives that have one
  std::uint64_t element_bytes = 1;  ///< granularity of reductions and of block boundaries
  std::uint64_t bytes = 0;          ///< per rank, as the collective counts, see below
  std::uint64_t scratch_bytes = 0;  ///< scratch used per rank; 0: the plan touches no scratch
  bool in_place = false;            ///< input and output overlap as the collective's in-place form says
  bool average = false;             ///< results are divided by `ranks`: for the operator avg and only for it
  bool direct = false;              ///< ranks touch each other's inputs and outputs, see below
  /// Of two ranks: each has read last where the other one has written at the plan's beginning. No matter of
  /// correctness: an executor that exchanges their scratch before the next operation spares cores fetching.
  bool trades_scratch = false;
  ReductionOrder order = ReductionOrder::none;
  /// Of collectives with blocks of different sizes, in bytes: [rank], of all_to_all_v [from * ranks + to].
  /// Blocks lie in a buffer one behind the other.
  std::vector<std::uint64_t> blocks;
  /// [rank]: its group, numbered in the order of their lowest ranks. Of plans that know of groups; empty
  /// else.
  std::vector<std::int32_t> groups;
  std::vector<std::vector<Program>> programs;  ///< [rank][channel]

  // `bytes` counts, per rank, with n ranks (in brackets: the in-place form):
  //   all_reduce:     input = output = bytes                     (same buffer)
  //   broadcast:      root's input = output = bytes              (same buffer)
  //   reduce:         input = root's output = bytes              (same buffer at the root)
  //   all_gather:     input = bytes, output = n * bytes          (input = output + rank * bytes)
  //   gather:         input = bytes, root's output = n * bytes   (at the root, as all_gather)
  //   reduce_scatter: input = n * bytes, output = bytes          (output = input + rank * bytes)
  //   scatter:        root's input = n * bytes, output = bytes   (at the root, as reduce_scatter)
  //   all_to_all:     input = output = n * bytes                 (same buffer)
  //   send_recv:      sender's input = receiver's output = bytes
  // With blocks of different sizes `bytes` is the sum of all of them, and (in brackets as above):
  //   all_gather_v:     input = blocks[rank], output = bytes
  //   reduce_scatter_v: input = bytes, output = blocks[rank]
  //   all_to_all_v:     input = row `rank`, output = column `rank`  (same buffer, if row and column are
  //   equal)
  /// Input that a rank has; 0 where it has none.
  std::uint64_t input_bytes(std::int32_t rank) const noexcept;
  std::uint64_t output_bytes(std::int32_t rank) const noexcept;
  /// Size of the block that `from` has for `to` (of all_gather_v and reduce_scatter_v: block `to`), and where
  /// it begins in the input of `from`; in the output of `to` it begins at output_begin.
  std::uint64_t block_bytes(std::int32_t from, std::int32_t to) const noexcept;
  std::uint64_t input_begin(std::int32_t from, std::int32_t to) const noexcept;
  std::uint64_t output_begin(std::int32_t from, std::int32_t to) const noexcept;
  /// In place, where input and output of `rank` begin in the buffer that they share.
  std::uint64_t shared_offset(Space space, std::int32_t rank) const noexcept;
  /// True when input and output of `rank` share a buffer in this plan.
  bool shares_buffer(std::int32_t rank) const noexcept;

  // A direct plan runs only where all ranks map the buffers of all. Its executor starts no step before every
  // rank has come, and a rank's program must not end while others may still touch its buffers.
};

}  // namespace tugline::core

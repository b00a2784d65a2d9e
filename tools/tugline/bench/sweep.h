// SPDX-License-Identifier: Apache-2.0
// Which sizes a bench runs over, and what a size means for each collective: nccl-tests' conventions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "options.h"

namespace tugline::cli {

/// Sizes from begin to end, both included if the steps meet the end. After 0 comes 8 where steps multiply.
std::vector<std::uint64_t> sizes_of(const BenchOptions& options);

/// One call's extent, in elements, the same on all ranks.
struct Shape {
  std::uint64_t count = 0;  ///< the call's argument
  // Of every rank (that sends, that receives), but for collectives with blocks: see sent_by().
  std::uint64_t send_count = 0;  ///< elements read
  std::uint64_t recv_count = 0;  ///< elements written
  std::uint64_t bytes = 0;       ///< of the larger of the two buffers: the column "size"
  /// With blocks of different sizes, their counts: block i of all_gather_v and reduce_scatter_v; of
  /// all_to_all_v rank i has blocks[(i + j) mod n] for rank j.
  std::vector<std::size_t> blocks = {};
  /// Elements from the start of `blocks` to block `index`.
  std::uint64_t begin_of(int index) const noexcept;
  /// What `from` has for `to`.
  std::uint64_t between(int from, int to) const noexcept;
};
/// Elements of this very rank's input and output: of all_gather_v the input is its block, of reduce_scatter_v
/// the output.
std::uint64_t sent_by(core::Collective collective, const Shape& shape, int rank) noexcept;
std::uint64_t received_by(core::Collective collective, const Shape& shape, int rank) noexcept;
/// The shape whose larger buffer has at most `bytes`.
Shape shape_of(core::Collective collective, std::uint64_t bytes, std::uint64_t element_bytes, int ranks);

/// One note per type, where sizes do not hold whole counts and are measured as smaller ones.
std::vector<std::string> notes_on_sizes(const BenchOptions& options, int ranks);

/// Where the input starts in the one buffer of an in-place call of `rank`, in elements; likewise the output.
std::uint64_t in_place_send_offset(core::Collective collective, const Shape& shape, int rank) noexcept;
std::uint64_t in_place_recv_offset(core::Collective collective, const Shape& shape, int rank) noexcept;

bool has_data(core::Collective collective) noexcept;
/// send_recv has no in-place form: a rank would overwrite what it still has to send.
bool has_in_place(core::Collective collective) noexcept;

/// busbw = algbw * factor; see the performance page of nccl-tests.
double bus_factor(core::Collective collective, int ranks) noexcept;

}  // namespace tugline::cli

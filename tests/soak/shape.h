// SPDX-License-Identifier: Apache-2.0
// What a rank gives to an operation and what it must get, as pieces of its buffers: the definition of every
// collective, written down a second time and apart from the library.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "soak/draw.h"

namespace tugline::soak {

/// Of all ranks, combined by the operator.
inline constexpr int kAll = -1;

/// Elements `at` .. `at + count` of a buffer are elements 0 .. count of block `block` of what `source` gives.
struct Piece {
  std::size_t at = 0;
  std::size_t count = 0;
  int source = 0;
  int block = 0;
};

struct Shape {
  std::vector<Piece> sent;
  std::vector<Piece> received;
  std::size_t send_elements = 0;
  std::size_t recv_elements = 0;
  bool has_send = false;  ///< false: the library reads no send buffer of this rank; null is allowed
  bool has_recv = false;
  /// Elements from the send buffer's begin to the receive buffer's when both are one.
  std::optional<std::ptrdiff_t> in_place;
};

Shape shape_of(const Draw& draw, int rank, int ranks);

/// Where all_to_all_v's blocks lie in a buffer: `counts[i]` elements from `displacements[i]` on.
struct Blocks {
  std::vector<std::size_t> counts;
  std::vector<std::size_t> displacements;
};
Blocks blocks_sent(const Draw& draw, int rank, int ranks);
Blocks blocks_received(const Draw& draw, int rank, int ranks);

}  // namespace tugline::soak

// SPDX-License-Identifier: Apache-2.0
// Elements whose reductions are exact in every type and order, and the bytes that every rank must find.
#pragma once

#include <cstddef>

#include "soak/shape.h"

namespace tugline::soak {

/// Writes the piece's elements into the buffer that begins at `buffer`.
void write_piece(const Draw& draw, const Piece& piece, int ranks, std::byte* buffer);
/// The first element of the piece that is not as it must be, counted from the piece's begin; its count if all
/// are.
std::size_t first_wrong(const Draw& draw, const Piece& piece, int ranks, const std::byte* buffer);

}  // namespace tugline::soak

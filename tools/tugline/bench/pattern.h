// SPDX-License-Identifier: Apache-2.0
// Inputs whose results are known: every rank's elements follow a pattern of prime period, so that inputs are
// made and results are compared at the speed of memory, and an element out of place shows. Reductions use
// small whole numbers, so that every order of combination gives the same bits in every type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/sweep.h"
#include "core/plan/plan.h"
#include "tugline/types.h"

namespace tugline::cli {

struct PatternRequest {
  core::Collective collective = core::Collective::all_reduce;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  int ranks = 1;
  int rank = 0;  ///< this one
  int root = 0;
  Shape shape;
  std::uint64_t seed = 0;  ///< another one gives other elements
};

/// Writes this rank's input (shape.send_count elements).
void fill_input(const PatternRequest& request, std::byte* input);
/// Number of elements of this rank's output (shape.recv_count; none where only the root has one) that differ
/// from what they must be.
std::uint64_t count_wrong(const PatternRequest& request, const std::byte* output);
/// Writes one element; `value` must be representable, 16-bit types round.
void store_as(DataType type, std::byte* at, double value) noexcept;
/// Writes the same plain value everywhere: cheap, finite, another one for another `round`.
void fill_plain(DataType type, std::byte* buffer, std::uint64_t count, std::uint64_t round);

}  // namespace tugline::cli

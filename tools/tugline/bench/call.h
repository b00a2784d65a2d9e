// SPDX-License-Identifier: Apache-2.0
// One collective call with its buffers, in the form that is measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/plan/plan.h"
#include "tugline/communicator.h"

namespace tugline::cli {

struct Call {
  core::Collective collective = core::Collective::all_reduce;
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
  std::uint64_t count = 0;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  /// Of collectives with blocks of different sizes; of all_to_all_v those to and from each rank, which are of
  /// one size, and where they begin.
  std::vector<std::size_t> blocks = {};
  std::vector<std::size_t> displacements = {};
};

/// Makes the call; `target` is empty (blocking) or a stream. send_recv sends to the next rank and receives
/// from the one before. Throws as the communicator does.
void issue(Communicator& communicator, const Call& call, Target target);

}  // namespace tugline::cli

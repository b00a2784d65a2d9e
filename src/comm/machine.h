// SPDX-License-Identifier: Apache-2.0
// Where ranks run, as they say it of themselves on the board: what all of them know alike of the machine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/layout.h"
#include "core/plan/cost.h"
#include "topology/locality.h"

namespace tugline::comm {

/// A locality as one word; 0 says nothing.
std::uint64_t packed(const topology::Locality& locality) noexcept;

/// The groups of ranks near each other, as core::PlanRequest::groups: by NUMA node where ranks lie in
/// several, else by last-level cache; empty where a rank lies in several itself, or all in one. `localities`:
/// packed, by rank.
std::vector<std::int32_t> groups_of(std::span<const std::uint64_t> localities);

/// Different cores that the ranks `originals` may use, all together.
int count_cores(const Board& board, std::span<const std::uint32_t> originals) noexcept;

/// The machine of the ranks `originals`, of which all have come to the board.
core::CostModel machine_of(const Board& board, std::span<const std::uint32_t> originals);

}  // namespace tugline::comm

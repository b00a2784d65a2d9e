// SPDX-License-Identifier: Apache-2.0
// Whether all ranks have the same settings, where they must: plans, checks and the sizes of what they share
// follow from these. Every rank notes its own on the board as it comes, and compares them with those of all
// that have come before. So no rank waits for another one, and of any two that differ one finds out; what it
// leaves on the board is an error to all, at once to those who come later, in their waits to the others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "comm/layout.h"
#include "tugline/error.h"

namespace tugline::comm {

/// Two ranks whose settings differ.
struct SettingsDifference {
  std::uint32_t ranks[2] = {};  ///< original ranks
  std::uint32_t other_than(std::uint32_t rank) const noexcept { return ranks[rank == ranks[0] ? 1 : 0]; }
};

/// Notes this process's settings as those of `rank`; before its word of Board::members. Throws internal where
/// they do not fit.
void note_settings(Board& board, std::uint32_t rank);
/// After the rank's word of Board::members was stored (seq_cst): compares its note with those of all `size`
/// ranks that have come. True when they differ, which different_settings() tells everybody from then on.
bool compare_settings(Board& board, std::uint32_t rank, std::uint32_t size) noexcept;
/// Two ranks that differ, if any do.
std::optional<SettingsDifference> different_settings(const Board& board) noexcept;
/// The settings, the values and the ranks.
std::string describe(const Board& board, const SettingsDifference& difference);
/// The mismatch; `what` as of describe().
Error settings_error(const std::string& what, ErrorContext context);

}  // namespace tugline::comm

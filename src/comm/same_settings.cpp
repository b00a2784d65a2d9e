// SPDX-License-Identifier: Apache-2.0
#include "comm/same_settings.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "base/settings.h"

namespace tugline::comm {
namespace {

using Words = std::array<std::uint64_t, SettingsNote::kWords>;

Words read(const SettingsNote& note) noexcept {
  Words words{};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = note.words[i].load(std::memory_order_relaxed);
  return words;
}

std::string text_of(const SettingsNote& note) {
  const Words words = read(note);
  std::string text(sizeof(words), '\0');
  std::memcpy(text.data(), words.data(), sizeof(words));
  return text.substr(0, text.find('\0'));
}

}  // namespace

void note_settings(Board& board, std::uint32_t rank) {
  const std::string text = base::same_values(base::settings());
  Words words{};
  if (text.size() > sizeof(words))
    throw Error(
        ErrorCode::internal,
        fmt::format("the settings that all ranks compare take {} bytes, {} fit", text.size(), sizeof(words)),
        "report this with the output of `tugline config`");
  std::memcpy(words.data(), text.data(), text.size());
  for (std::size_t i = 0; i < words.size(); ++i)
    board.settings[rank].words[i].store(words[i], std::memory_order_relaxed);
}

bool compare_settings(Board& board, std::uint32_t rank, std::uint32_t size) noexcept {
  const Words mine = read(board.settings[rank]);
  for (std::uint32_t other = 0; other < size; ++other) {
    // In one order with the stores: of two ranks that come at the same time, one sees the other.
    if (other == rank || board.members[other].load(std::memory_order_seq_cst) == 0 ||
        read(board.settings[other]) == mine)
      continue;
    std::uint64_t none = 0;
    const auto pair = static_cast<std::uint64_t>(other + 1) << 32 | (rank + 1);
    board.different_settings.compare_exchange_strong(none, pair, std::memory_order_acq_rel);
    return true;
  }
  return false;
}

std::optional<SettingsDifference> different_settings(const Board& board) noexcept {
  const std::uint64_t pair = board.different_settings.load(std::memory_order_acquire);
  if (pair == 0) return std::nullopt;
  return SettingsDifference{
      {static_cast<std::uint32_t>(pair >> 32) - 1, static_cast<std::uint32_t>(pair) - 1}};
}

std::string describe(const Board& board, const SettingsDifference& difference) {
  const auto [one, other] = difference.ranks;
  return base::describe_different_values(text_of(board.settings[one]), text_of(board.settings[other]),
                                         fmt::format("rank {}", one), fmt::format("rank {}", other));
}

Error settings_error(const std::string& what, ErrorContext context) {
  return Error(ErrorCode::mismatch, what,
               "give all ranks the same value, in the environment or in the settings file, and start them "
               "again",
               std::move(context));
}

}  // namespace tugline::comm

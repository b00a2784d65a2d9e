// SPDX-License-Identifier: Apache-2.0
#include "values.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

namespace tugline::cli {
namespace {

/// In the order of DataType.
constexpr std::string_view kColumnNames[] = {"int8",   "uint8", "int32",    "uint32", "int64",
                                             "uint64", "half",  "bfloat16", "float",  "double"};

}  // namespace

std::optional<std::uint64_t> parse_bytes(std::string_view text) noexcept {
  std::uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  std::string_view suffix = text.substr(static_cast<std::size_t>(end - text.data()));
  int shift = 0;
  if (!suffix.empty()) {
    switch (suffix.front() | 0x20) {
      case 'k':
        shift = 10;
        break;
      case 'm':
        shift = 20;
        break;
      case 'g':
        shift = 30;
        break;
      case 'b':
        break;
      default:
        return std::nullopt;
    }
    if (shift != 0) suffix.remove_prefix(1);
    if (shift != 0 && !suffix.empty() && suffix.front() == 'i') suffix.remove_prefix(1);
    if (!suffix.empty() && (suffix.front() | 0x20) == 'b') suffix.remove_prefix(1);
    if (!suffix.empty()) return std::nullopt;
  }
  if (value > (std::numeric_limits<std::uint64_t>::max() >> shift)) return std::nullopt;
  return value << shift;
}

std::optional<DataType> parse_type(std::string_view text) noexcept {
  for (int i = 0; i < kDataTypeCount; ++i) {
    auto type = static_cast<DataType>(i);
    if (text == name_of(type) || text == kColumnNames[i]) return type;
  }
  return std::nullopt;
}

std::optional<ReduceOp> parse_operator(std::string_view text) noexcept {
  for (int i = 0; i < kReduceOpCount; ++i) {
    if (text == name_of(static_cast<ReduceOp>(i))) return static_cast<ReduceOp>(i);
  }
  return std::nullopt;
}

std::optional<core::Collective> parse_collective(std::string_view text) noexcept {
  for (int i = 0; i < core::kCollectiveCount; ++i) {
    auto collective = static_cast<core::Collective>(i);
    if (text == core::name_of(collective)) return collective;
  }
  if (text == "alltoall") return core::Collective::all_to_all;
  if (text == "sendrecv") return core::Collective::send_recv;
  return std::nullopt;
}

std::string_view column_name(DataType type) noexcept {
  return kColumnNames[static_cast<std::size_t>(type)];
}

std::string human_bytes(std::uint64_t bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  auto value = static_cast<double>(bytes);
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  bool whole = value == static_cast<double>(static_cast<std::uint64_t>(value));
  return whole ? fmt::format("{:.0f} {}", value, kUnits[unit])
               : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace tugline::cli

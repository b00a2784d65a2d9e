// SPDX-License-Identifier: Apache-2.0
#include "core/plan/symbolic_memory.h"

namespace tugline::core {

SymbolicMemory::Segments::iterator SymbolicMemory::cut(std::uint64_t address) {
  if (address >= bytes_) return segments_.end();
  auto it = std::prev(segments_.upper_bound(address));
  if (it->first == address) return it;
  return segments_.emplace_hint(std::next(it), address, it->second);
}

void SymbolicMemory::initialise(std::uint64_t begin, std::uint64_t bytes, Expression expression) {
  if (bytes > 0) write(begin, {{bytes, expression, 0}}, Access{});
}

void SymbolicMemory::write(std::uint64_t begin, const std::vector<Piece>& pieces, Access writer) {
  std::uint64_t end = begin;
  for (const Piece& piece : pieces) end += piece.bytes;
  if (end == begin) return;
  const auto behind = cut(end);
  segments_.erase(cut(begin), behind);
  std::uint64_t address = begin;
  for (const Piece& piece : pieces) {
    Segment segment;
    segment.expression = piece.expression;
    segment.shift = static_cast<std::int64_t>(piece.coordinate) - static_cast<std::int64_t>(address);
    segment.writer = writer;
    segments_.emplace_hint(behind, address, std::move(segment));
    address += piece.bytes;
  }
}

void append(std::vector<Piece>& pieces, const Piece& piece) {
  if (piece.bytes == 0) return;
  if (!pieces.empty()) {
    Piece& last = pieces.back();
    if (last.expression == piece.expression && last.coordinate + last.bytes == piece.coordinate) {
      last.bytes += piece.bytes;
      return;
    }
  }
  pieces.push_back(piece);
}

}  // namespace tugline::core

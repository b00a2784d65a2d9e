// SPDX-License-Identifier: Apache-2.0
// A buffer as the checker sees it: ranges of bytes, what each holds, and who touched it last.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/plan/expression.h"

namespace tugline::core {

/// `bytes` of an expression from `coordinate` on.
struct Piece {
  std::uint64_t bytes = 0;
  Expression expression = kUndefined;
  std::uint64_t coordinate = 0;
};

/// An access by an agent (a channel of a rank) at one of its steps, at that agent's time.
struct Access {
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};
  std::uint32_t agent = kNobody;
  std::uint32_t clock = 0;
  std::uint32_t step = 0;
};

class SymbolicMemory {
 public:
  struct Segment {
    Expression expression = kUndefined;
    std::int64_t shift = 0;  ///< coordinate minus address
    Access writer;
    std::vector<Access> readers;  ///< since the last write, the last one of each agent
  };

  explicit SymbolicMemory(std::uint64_t bytes) : bytes_(bytes) {
    if (bytes > 0) segments_.emplace(0, Segment{});
  }

  /// Initial contents: `expression` from its coordinate 0 on.
  void initialise(std::uint64_t begin, std::uint64_t bytes, Expression expression);

  /// Calls visit(begin, end, segment) over [begin, begin + bytes), cut at its ends; stops when visit returns
  /// false.
  template <class Visit>
  bool visit(std::uint64_t begin, std::uint64_t bytes, Visit visit_segment) {
    if (bytes == 0) return true;
    cut(begin + bytes);
    for (auto it = cut(begin); it != segments_.end() && it->first < begin + bytes; ++it) {
      const auto next = std::next(it);
      if (!visit_segment(it->first, next == segments_.end() ? bytes_ : next->first, it->second)) return false;
    }
    return true;
  }

  /// Replaces what lies from `begin` on.
  void write(std::uint64_t begin, const std::vector<Piece>& pieces, Access writer);

 private:
  using Segments = std::map<std::uint64_t, Segment>;
  /// The segment that begins at `address`, which is made to begin there; end() behind the last byte.
  Segments::iterator cut(std::uint64_t address);

  std::uint64_t bytes_;
  Segments segments_;
};

/// Appends, joined to the last piece when it goes on there.
void append(std::vector<Piece>& pieces, const Piece& piece);

}  // namespace tugline::core

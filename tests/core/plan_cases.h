// SPDX-License-Identifier: Apache-2.0
// The requests that plan tests go through.
#pragma once

#include <gmock/gmock.h>

#include <ostream>
#include <string>
#include <vector>

#include "core/plan/builders.h"
#include "core/plan/groups.h"

namespace tugline::core {

inline std::string text_of(const std::vector<std::int32_t>& groups) {
  std::string text;
  for (const std::int32_t group : groups) text += (text.empty() ? "" : ",") + std::to_string(group);
  return text;
}

inline std::string describe(std::string_view builder, const PlanRequest& r) {
  return std::string(builder) + " " + std::string(name_of(r.collective)) + " ranks " +
         std::to_string(r.ranks) + " root " + std::to_string(r.root) + " bytes " + std::to_string(r.bytes) +
         " element " + std::to_string(r.element_bytes) + " scratch " + std::to_string(r.scratch_bytes) +
         " chunk " + std::to_string(r.chunk_bytes) + (r.in_place ? " in place" : "") +
         (r.average ? " average" : "") + (r.groups.empty() ? "" : " groups " + text_of(r.groups));
}

namespace test {

/// Every so many of the cases, and up to so many ranks. Where AddressSanitizer looks at the memory of all
/// that, which takes ten times as long, it sees a third of them; the proofs are the plain build's.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr int kStride = 3;
inline constexpr std::int32_t kMostRanks = 33;
#else
inline constexpr int kStride = 1;
inline constexpr std::int32_t kMostRanks = 64;
#endif

/// Sizes of blocks that differ, some of them nothing; alike both ways in place.
inline void give_blocks(PlanRequest& request, std::uint64_t elements) {
  const auto n = static_cast<std::uint64_t>(request.ranks);
  const bool pairs = request.collective == Collective::all_to_all_v;
  request.bytes = 0;
  for (std::uint64_t i = 0; i < (pairs ? n * n : n); ++i) {
    const std::uint64_t from = i / n;
    const std::uint64_t to = i % n;
    const std::uint64_t salt = request.in_place ? from * to + from + to : from * 5 + to * 3;
    const std::uint64_t share = (salt + elements) % 4;
    request.blocks.push_back(elements * share / 2 * request.element_bytes);
    request.bytes += request.blocks.back();
  }
}

/// Groups of a few shapes: halves, one rank alone, ranks that alternate, threes.
inline std::vector<std::int32_t> groups_of(std::int32_t ranks, std::uint64_t shape) {
  std::vector<std::int64_t> groups;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    const std::int32_t of_shape[] = {rank * 2 / ranks, rank == ranks / 2 ? 1 : 0, rank % 2, rank / 3};
    groups.push_back(of_shape[shape % 4]);
  }
  return numbered_in_order(groups);
}

/// Calls visit(builder, request) for every builder that can serve a request of the grid.
template <class Visit>
void for_each_case(const std::vector<std::int32_t>& rank_counts, const std::vector<std::uint64_t>& sizes,
                   Visit visit) {
  for (int collective = 0; collective < kCollectiveCount; ++collective) {
    for (std::int32_t ranks : rank_counts) {
      for (std::uint64_t elements : sizes) {
        for (int variant = 0; variant < 8; ++variant) {
          PlanRequest request;
          request.collective = static_cast<Collective>(collective);
          request.ranks = ranks;
          request.root = (variant & 1) != 0 ? ranks - 1 : (variant & 4) != 0 ? ranks / 2 : 0;
          request.in_place = (variant & 1) != 0 || variant == 4;
          request.average = (variant & 2) != 0;
          request.element_bytes = (variant & 2) != 0 ? 2 : 4;
          request.bytes = elements * request.element_bytes;
          if (has_blocks(request.collective)) give_blocks(request, elements);
          request.scratch_bytes = (variant & 4) != 0 ? 4 << 10 : 64 << 10;
          request.chunk_bytes = (variant & 4) != 0 ? 0 : 512;
          if (variant % 3 != 0)
            request.groups = groups_of(ranks, elements + static_cast<std::uint64_t>(variant));
          request.direct = (variant & 4) != 0 || variant == 0;
          for (auto builder : builder_names()) {
            if (can_build(builder, request)) visit(builder, request);
          }
        }
      }
    }
  }
}

}  // namespace test
}  // namespace tugline::core

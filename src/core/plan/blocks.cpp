// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/plan/builder_parts.h"

namespace tugline::core {

Blocks::Blocks(const PlanRequest& request, std::int32_t self) {
  const auto n = static_cast<std::size_t>(request.ranks);
  const auto lay_out = [&](std::vector<Block>& list, auto size_of_block) {
    std::uint64_t begin = 0;
    for (std::size_t peer = 0; peer < n; ++peer) {
      const std::uint64_t bytes = size_of_block(peer);
      list.push_back({begin, bytes});
      begin += bytes;
    }
  };
  if (!has_blocks(request.collective)) {
    lay_out(sent_, [&](std::size_t) { return request.bytes; });
  } else if (request.collective != Collective::all_to_all_v) {
    lay_out(sent_, [&](std::size_t peer) { return request.blocks[peer]; });
  } else if (request.only_rank < 0) {
    const auto row = static_cast<std::size_t>(self);
    lay_out(sent_, [&](std::size_t peer) { return request.blocks[row * n + peer]; });
    lay_out(received_, [&](std::size_t peer) { return request.blocks[peer * n + row]; });
  } else {
    lay_out(sent_, [&](std::size_t peer) { return request.blocks[peer]; });
    lay_out(received_, [&](std::size_t peer) { return request.blocks[n + peer]; });
  }
}

std::uint64_t longest_block(const PlanRequest& request) noexcept {
  if (!has_blocks(request.collective)) return request.bytes;
  return request.blocks.empty() ? 0 : *std::max_element(request.blocks.begin(), request.blocks.end());
}

}  // namespace tugline::core

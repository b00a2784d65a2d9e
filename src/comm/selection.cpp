// SPDX-License-Identifier: Apache-2.0
#include "comm/selection.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/layout.h"
#include "tugline/error.h"

namespace tugline::comm {
namespace {

// From here on moving each byte once to its reducer beats reading everybody's whole input.
constexpr std::uint64_t kTwoShotFromBytes = 8 << 10;

/// Only ever asked for a request that makes sense, so that scratch is all that can be missing.
std::string remedy_for(core::PlanRequest request) {
  if (request.collective == core::Collective::send_recv)
    return "send fewer bytes at once: the scratch between two ranks follows from their number";
  const auto most = kScratchLimit / static_cast<std::uint64_t>(request.ranks);
  for (auto bytes = std::max<std::uint64_t>(request.scratch_bytes, 1); bytes * kHalves <= most; bytes *= 2) {
    request.scratch_bytes = bytes;
    for (auto builder : core::builder_names())
      if (core::can_build(builder, request))
        return fmt::format("set TUGLINE_SCRATCH_BYTES to {} or more", bytes * kHalves);
  }
  return fmt::format("move fewer bytes at once: more than {} bytes of scratch a rank are not to be had",
                     most);
}

Choice choose_freely(const core::PlanRequest& request) {
  if (core::can_build("one_shot_packet", request))
    return {"one_shot_packet",
            fmt::format("fits one packet of {} bytes: one trip, no exit barrier", core::kPacketBytes)};
  if (core::can_build("direct", request))
    return {"direct", "every rank can reach the buffers of all: nothing is copied through scratch"};
  // Two ranks read the same bytes either way, and one shot lets them trade their scratch.
  if (request.ranks > 2 && request.bytes >= kTwoShotFromBytes && core::can_build("two_shot", request))
    return {
        "two_shot",
        fmt::format("{} bytes and more on {} ranks: every byte is copied once to its reducer and once back",
                    kTwoShotFromBytes, request.ranks)};
  if (request.ranks == 2 && core::can_build("one_shot", request))
    return {"one_shot", "two ranks: every byte is fetched once by the other one"};
  for (auto builder : core::builder_names())
    if (builder != "one_shot_packet" && core::can_build(builder, request))
      return {builder, "first builder that serves the request"};
  throw Error(
      ErrorCode::unsupported,
      fmt::format("no plan for {} of {} bytes on {} ranks with {} bytes of scratch",
                  core::name_of(request.collective), request.bytes, request.ranks, request.scratch_bytes),
      remedy_for(request), {.operation = std::string(core::name_of(request.collective))});
}

}  // namespace

Choice choose_builder(const core::PlanRequest& request, std::string_view forced) {
  core::validate(request);
  if (forced.empty()) return choose_freely(request);
  if (core::can_build(forced, request)) return {forced, "named by the setting plan"};
  auto choice = choose_freely(request);
  choice.reason += fmt::format("; {}, which the setting plan names, cannot serve it", forced);
  return choice;
}

}  // namespace tugline::comm

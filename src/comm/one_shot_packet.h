// SPDX-License-Identifier: Apache-2.0
// The plan "one_shot_packet", specialised for latency: the same packets, flags and descriptors as the
// executor uses for that plan, so ranks may mix the two. Tested against the executor on the same input.
#pragma once

#include <optional>

#include "comm/call.h"
#include "comm/epoch.h"
#include "comm/same_calls.h"
#include "comm/wait.h"
#include "tugline/function_ref.h"

namespace tugline::comm {

/// What became of a call.
struct PacketResult {
  Status status;
  std::optional<CallDifference> difference;  ///< a rank made a different call; status is mismatch
};

/// True when the specialised path serves the call: where the selection takes one_shot_packet.
bool fits_one_shot_packet(const Call& call, std::uint32_t ranks) noexcept;

/// Runs it, blocking. `alarm` looks whether waiting for operation `sequence` makes
/// sense.
PacketResult run_one_shot_packet(Epoch& epoch, Board& board, WaitPlace& place,
                                 FunctionRef<Status(std::uint64_t sequence)> alarm, const Call& call);

}  // namespace tugline::comm

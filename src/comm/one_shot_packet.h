// SPDX-License-Identifier: Apache-2.0
// The plan "one_shot_packet" of all_reduce and barrier, specialised for latency: the same packets, flags and
// descriptors as the executor uses for that plan, so ranks may mix the two. Tested against the executor on
// the same input.
#pragma once

#include "comm/call.h"
#include "comm/epoch.h"
#include "comm/kernels_host/reduce.h"
#include "comm/wait.h"

namespace tugline::comm {

/// What the caller is to do about a failed wait.
struct PacketResult {
  Status status;
  std::int32_t mismatch_peer = -1;  ///< a rank that made a different call; status is mismatch
  Descriptor other;
};

/// True when the specialised path serves the call.
bool fits_one_shot_packet(const Call& call) noexcept;

/// Runs it, blocking. Only after known_finished allows the next operation: see PlanRun::may_enter.
PacketResult run_one_shot_packet(Epoch& epoch, Board& board, WaitPlace& place, AlarmCheck alarm,
                                 const Call& call);

}  // namespace tugline::comm

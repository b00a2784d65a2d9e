// SPDX-License-Identifier: Apache-2.0
// Who keeps the others waiting: the report of a long wait, and the ranks whose processes are stopped.
#pragma once

#include <cstdint>
#include <string>

#include "comm/epoch.h"
#include "comm/layout.h"
#include "comm/wait.h"
#include "comm/wait_note.h"
#include "core/control.h"

namespace tugline::comm {

/// "rank 2 (pid 4711) is stopped (state T since 34 s)", several joined by commas; empty when no rank of the
/// epoch is stopped or held by a tracer. Only processes of this PID namespace can be looked up. All ranks are
/// looked at, not only the awaited one, which may itself wait for the stopped one. Reads /proc; thread-safe.
std::string stopped_ranks(const core::ControlSegment& control, const Board& board, const Epoch& epoch);

/// What is known of the rank that `wait` is for, to follow a sentence: that it has not joined, or what it
/// waits for itself, and whether that leads back to this rank. Starts with "; " unless it is empty.
std::string wait_story(const WaitPlace& place, const ShownWait& wait);

/// Logs one line: who is stopped, if anybody is, what is waited for, and wait_story().
void report_wait(const WaitPlace& place, const WaitSubject& subject, std::uint64_t waited_ns);

}  // namespace tugline::comm

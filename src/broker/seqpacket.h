// SPDX-License-Identifier: Apache-2.0
// SOCK_SEQPACKET with descriptors: one message is one frame; the kernel keeps the boundaries, so nobody can
// hold the other side in half a frame.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/unique_fd.h"
#include "core/frame.h"

namespace tugline::broker {

enum class ReceiveOutcome : std::uint8_t {
  message,
  nothing,  ///< no message now
  closed,   ///< the other side is gone
  cut_off,  ///< a message without its descriptors: there were too many, or this process has no room for them
  malformed,  ///< longer than a frame; descriptors that came were closed
};

struct Received {
  ReceiveOutcome outcome = ReceiveOutcome::nothing;
  std::size_t bytes = 0;
  std::vector<base::UniqueFd> descriptors;  ///< close-on-exec
};

using FrameBuffer = std::array<std::byte, core::kMaxFrameBytes>;

/// Takes one message without blocking.
Received receive_message(int socket, FrameBuffer& buffer);

enum class SendOutcome : std::uint8_t {
  sent,
  full,                  ///< the other side does not read; try again when writable
  closed,                ///< the other side is gone
  too_many_descriptors,  ///< too many are in flight, or the table is full (ETOOMANYREFS)
};

/// Sends one message without blocking; `descriptor` goes with it unless it is -1. Raises no SIGPIPE.
SendOutcome send_message(int socket, std::span<const std::byte> bytes, int descriptor = -1) noexcept;

/// Waits until `events` (poll's) or hang-up shows on the socket, which is looked at once in any case. False
/// when `deadline_ns` (base::running_ns) passed.
bool wait_for(int socket, short events, std::uint64_t deadline_ns) noexcept;

}  // namespace tugline::broker

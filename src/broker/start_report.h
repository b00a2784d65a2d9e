// SPDX-License-Identifier: Apache-2.0
// What a broker that is being started tells the process that starts it: that it serves, or why not. Over a
// socket: one frame of the broker's protocol, Done or Failure; its end without one says that it died.
#pragma once

#include <cstdint>
#include <string>

#include "base/unique_fd.h"
#include "tugline/error.h"

namespace tugline::broker {

/// The broker's end. Does nothing when it has no descriptor. Not thread-safe.
class StartReport {
 public:
  StartReport() = default;
  explicit StartReport(base::UniqueFd socket) noexcept : socket_(std::move(socket)) {}
  /// Says that it serves, and lets the socket and the standard error that leads to the starter go.
  void serves() noexcept;
  void failed(const Error& error) noexcept;

 private:
  base::UniqueFd socket_;
};

/// The starter's ends.
struct StartChannel {
  base::UniqueFd report;  ///< of StartReport
  base::UniqueFd text;    ///< what the program writes to standard error meanwhile
};

/// Blocks until the broker serves. Throws the Error that it reports, Error{broker_lost} with what it wrote
/// when it ended without one, Error{timed_out}. `program` and `place` are for the texts.
void wait_until_it_serves(const StartChannel& pipes, const std::string& program, const std::string& place,
                          std::uint64_t deadline_ns);

/// In the child, when the program cannot be executed. Async-signal-safe.
enum class StartStage : std::uint8_t { descriptors = 1, fork, execve };
void report_stage(int socket, StartStage stage, int reason) noexcept;

}  // namespace tugline::broker

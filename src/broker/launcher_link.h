// SPDX-License-Identifier: Apache-2.0
// A launcher's connection to the broker of its job: tells it of ranks that ended, so that nobody waits for
// one that the broker never met.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "broker/channel.h"
#include "core/control.h"

namespace tugline::broker {

/// What was said holds for as long as this lives. Not thread-safe.
class LauncherLink {
 public:
  /// Connects to a broker that runs already and has no launcher, which is one job's at a time. `token_hex`
  /// empty: read from the token file beside the socket. Throws Error{not_found} when nobody answers at
  /// `socket_path`, Error{permission_denied} for a foreign token or a broker that was started for another
  /// process, Error{already_exists} while another launcher is connected, Error{timed_out},
  /// Error{broker_lost}.
  LauncherLink(const std::string& socket_path, const std::string& job, const std::string& token_hex,
               std::chrono::milliseconds deadline = std::chrono::milliseconds(10'000));

  /// A socket that hangs up (POLLHUP) when the broker is gone; nothing is to be read from it.
  int descriptor() const noexcept { return channel_->socket(); }
  /// The process that was to be this rank has ended. The broker makes nothing of it when it has joined. Does
  /// not block; of a broker that is gone the ranks hear by themselves.
  void rank_ended(int rank, core::ProcessEnd end) noexcept;
  /// A new process is about to be this rank: takes rank_ended() back.
  void rank_starts(int rank) noexcept;

 private:
  template <class Message>
  void tell(const Message& message) noexcept;

  std::unique_ptr<Channel> channel_;
};

}  // namespace tugline::broker

// SPDX-License-Identifier: Apache-2.0
// A broker's process in the hands of `tugline run`.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "base/unique_fd.h"
#include "broker/place.h"

namespace tugline::broker {

/// Starts a job-scoped broker and ends it. The broker also ends by itself when this process is gone and no
/// member is left. Not thread-safe.
class BrokerProcess {
 public:
  /// Returns once it accepts. `socket_path` empty: derived from the job. Throws Error{already_exists} when a
  /// broker runs there, Error{timed_out}, Error{broker_lost}, and what spawn_broker() throws.
  explicit BrokerProcess(const std::string& job, const std::string& socket_path = {},
                         std::chrono::milliseconds deadline = std::chrono::milliseconds(10'000));
  /// stop()
  ~BrokerProcess();
  BrokerProcess(const BrokerProcess&) = delete;
  BrokerProcess& operator=(const BrokerProcess&) = delete;

  const std::string& socket_path() const noexcept { return place_.socket_path; }
  const std::string& token_hex() const noexcept { return token_hex_; }
  /// Not a child of this process, unless this process is a child subreaper. 0 when in a PID namespace that is
  /// not visible.
  pid_t pid() const noexcept { return pid_; }
  bool running() const noexcept;
  /// Ends it; members that are left get broker_lost. Blocks until its files are removed and its process has
  /// ended, at most `deadline`, after which it is killed. Later calls do nothing.
  void stop(std::chrono::milliseconds deadline = std::chrono::milliseconds(5'000)) noexcept;

 private:
  void start(const std::string& job, std::uint64_t deadline_ns);

  Place place_;
  Made made_;
  std::string token_hex_;
  pid_t pid_ = 0;
  base::UniqueFd pidfd_;
};

}  // namespace tugline::broker

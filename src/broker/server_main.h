// SPDX-License-Identifier: Apache-2.0
// A broker as a process: what `tugline broker` runs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tugline::broker {

enum class Scope : std::uint8_t {
  standing,    ///< `tugline broker`: outlives its jobs, ends by SIGTERM or SIGINT
  job_scoped,  ///< `tugline broker --job-scoped`, executed by spawn_broker() only: ends with the job, and
               ///< finds its locked directory and its owner at the descriptors that spawn.h names
};

struct BrokerOptions {
  std::string job;          ///< --job; empty: settings().job
  std::string socket_path;  ///< --socket; empty: derived from the job
  Scope scope = Scope::standing;
  /// Called once it accepts, with the socket's path; empty: nothing.
  std::function<void(const std::string& socket_path)> on_ready;
};

/// Serves until told to end (SIGTERM, SIGINT, SIGHUP) or, job-scoped, until the job is over. Takes those
/// signals over; one call per process. Returns 0. Throws Error{already_exists} when a broker runs there, and
/// what Endpoint throws.
int broker_main(const BrokerOptions& options);

}  // namespace tugline::broker

// SPDX-License-Identifier: Apache-2.0
// Finding a job's broker, or starting one.
#pragma once

#include <cstdint>
#include <string>

#include "base/unique_fd.h"
#include "broker/identity.h"
#include "broker/place.h"

namespace tugline::broker {

enum class WhenAbsent : std::uint8_t {
  fail,
  spawn,  ///< start one
};

struct Found {
  base::UniqueFd socket;     ///< connected
  base::UniqueFd directory;  ///< the broker's, checked
};

/// Connects to the broker at `place`. With WhenAbsent::spawn the process that gets the directory's lock first
/// starts one, and all others wait for it. Throws Error{not_found} when there is none (WhenAbsent::fail),
/// Error{timed_out}, Error{broker_lost} when those that are started end before they can be asked, and what
/// open_directory() and spawn_broker() throw. What was made for a start that failed is removed.
Found find_broker(const Place& place, const std::string& job, const std::string& token_hex, WhenAbsent absent,
                  std::uint64_t deadline_ns);

/// The token to show to the broker that was found: `token_hex`, or where that is empty what its token file
/// holds. Throws Error{permission_denied} when it is none, and what read_token() throws.
Token token_for(const Found& found, const Place& place, const std::string& token_hex);

}  // namespace tugline::broker

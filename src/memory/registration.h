// SPDX-License-Identifier: Apache-2.0
// Memory of the user that others can map: registered, in place.
#pragma once

#include <cstddef>
#include <memory>

#include "broker/client.h"
#include "tugline/buffer.h"

namespace tugline::memory {

/// Makes the pages of [address, address + bytes) those of an anonymous segment, and the range known to the
/// member's Windows. See Job::register_memory().
std::unique_ptr<Registration> register_memory(std::shared_ptr<broker::Client> client, void* address,
                                              std::size_t bytes);

}  // namespace tugline::memory

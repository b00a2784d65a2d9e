// SPDX-License-Identifier: Apache-2.0
// What a Job holds.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/launcher.h"
#include "broker/client.h"
#include "memory/member_memory.h"
#include "tugline/communicator.h"
#include "tugline/device.h"

namespace tugline::api {

class JobState {
 public:
  base::Identity identity;
  std::shared_ptr<broker::Client> client;
  std::shared_ptr<memory::MemberMemory> memory;
  std::vector<Device*> devices;  ///< of this member: rank-threads of one process do not share streams

  std::mutex mutex;                   ///< guards what follows
  std::shared_ptr<MemoryPool> pool;   ///< made by the first call of pool()
  std::optional<Communicator> world;  ///< made by the first call of communicator()
};

/// The state of a Job; throws Error{invalid_usage} for a null one, of a Job that was moved from.
const JobState& require(const JobState* state, const char* operation);
/// Throws that too, and the same after leave() and in a forked child.
void require_member(const JobState* state, const char* operation);

}  // namespace tugline::api

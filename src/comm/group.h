// SPDX-License-Identifier: Apache-2.0
// Calls collected by a Group, and how they are driven together.
#pragma once

#include <memory>
#include <vector>

#include "comm/call.h"

namespace tugline::comm {

class CommunicatorState;

struct GroupCall {
  std::shared_ptr<CommunicatorState> communicator;
  Call call;
};

class GroupState {
 public:
  std::vector<GroupCall> calls;
};

void add_to_group(GroupState& group, std::shared_ptr<CommunicatorState> communicator, const Call& call);
/// Drives all calls to their end; throws the first error after all have ended.
void run_group(std::vector<GroupCall> calls);

}  // namespace tugline::comm

// SPDX-License-Identifier: Apache-2.0
// Calls collected by a Group, and how they are driven together.
#pragma once

#include <cstddef>
#include <iterator>
#include <memory>
#include <memory_resource>
#include <span>
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
  GroupState() { calls.reserve(kFewCalls); }
  /// Leaves the group empty.
  std::vector<GroupCall> take() {
    std::vector<GroupCall> taken(std::make_move_iterator(calls.begin()),
                                 std::make_move_iterator(calls.end()));
    calls.clear();
    return taken;
  }

 private:
  /// A send and a receive need no further memory of the heap.
  static constexpr std::size_t kFewCalls = 2;
  alignas(GroupCall) std::byte few_[kFewCalls * sizeof(GroupCall)];
  std::pmr::monotonic_buffer_resource memory_{few_, sizeof few_};

 public:
  std::pmr::vector<GroupCall> calls{&memory_};
};

void add_to_group(GroupState& group, std::shared_ptr<CommunicatorState> communicator, Call call);
/// Drives all calls to their end; throws the first error after all have ended.
void run_group(std::span<const GroupCall> calls);

}  // namespace tugline::comm

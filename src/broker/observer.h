// SPDX-License-Identifier: Apache-2.0
// Looks at a running job without being a member: who is there, and who holds how much memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/shared_memory.h"
#include "broker/channel.h"
#include "broker/client.h"
#include "core/control.h"
#include "core/messages.h"

namespace tugline::broker {

struct MemberAccount {
  MemberId member = 0;
  int rank = 0;
  core::MemberState state = core::MemberState::empty;
  std::uint32_t pid = 0;            ///< as the member sees itself
  std::uint32_t pid_namespace = 0;  ///< inode of the namespace where `pid` means something
  core::UsageReport usage;
};

struct JobAccount {
  std::string job;
  int world_size = 0;                  ///< 0: nobody has joined
  std::vector<MemberAccount> members;  ///< those that have not gone, by rank
  core::UsageReport left;              ///< what those that are gone have left, and the job's sums
};

/// Not thread-safe.
class Observer {
 public:
  /// Connects to a broker that runs already. `token_hex` empty: read from the token file beside the socket.
  /// Throws Error{not_found} when nobody answers at `socket_path`, Error{permission_denied},
  /// Error{timed_out}, Error{broker_lost}.
  Observer(const std::string& socket_path, const std::string& job, const std::string& token_hex,
           std::chrono::milliseconds deadline = std::chrono::milliseconds(10'000));
  /// One request per member: the sums of two members may be of different moments.
  JobAccount look();

 private:
  std::uint64_t deadline_ns() const;

  std::chrono::milliseconds deadline_;
  std::string job_;
  std::unique_ptr<Channel> channel_;
  base::Mapping control_;
};

}  // namespace tugline::broker

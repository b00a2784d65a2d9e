// SPDX-License-Identifier: Apache-2.0
// What ranks that wait long say of themselves in the control segment, and what the others read there: who
// waits for whom, in which communicator, with which call. For reports and errors; nothing is decided by it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/epoch.h"
#include "core/control.h"

namespace tugline::comm {

struct WaitPlace;

/// One wait of one member.
struct ShownWait {
  std::uint64_t since_ns = 0;     ///< CLOCK_MONOTONIC
  std::uint64_t ended_ns = 0;     ///< when it timed out; 0: it goes on
  std::uint32_t rank = 0;         ///< its own, in the communicator
  std::int32_t peer = -1;         ///< whom it waits for, in the communicator; -1: several
  std::int32_t peer_member = -1;  ///< the same as a member; -1: several, or not joined
  std::int8_t message = 0;        ///< see WaitSubject
  std::uint64_t sequence = 0;     ///< of the operation in the communicator's epoch
  Descriptor call;
  std::string communicator;  ///< cut to fit
};

/// This rank's wait, made to be seen. Not thread-safe.
class PublishedWait {
 public:
  PublishedWait() = default;
  ~PublishedWait() { withdraw(); }
  PublishedWait(const PublishedWait&) = delete;
  PublishedWait& operator=(const PublishedWait&) = delete;

  /// Shows the wait, or what has become of it. Does nothing when all notes of the member are taken.
  void publish(const WaitPlace& place, const WaitSubject& subject, std::uint64_t since_ns) noexcept;
  /// It goes on no longer. Costs nothing when it was not published.
  void withdraw() noexcept {
    if (note_ != nullptr) end(0);
  }
  /// It has timed out: stays to be read, for the others are about to as well.
  void time_out(std::uint64_t now_ns) noexcept {
    if (note_ != nullptr) end(now_ns);
  }

 private:
  void end(std::uint64_t now_ns) noexcept;
  core::WaitNote* note_ = nullptr;
};

/// The wait as others would read it.
ShownWait shown(const WaitPlace& place, const WaitSubject& subject, std::uint64_t since_ns);
/// Waits that the member shows; empty when it is gone.
std::vector<ShownWait> waits_of(const core::ControlSegment& control, std::uint32_t member);

/// "all_reduce(count 8, f32, sum)", "recv(count 1, f32)"; empty without a call.
std::string call_text(const Descriptor& call, std::int8_t message);
/// "rank 1 waits in communicator world.1.0 for rank 0, for 2.0 s: barrier()". Ranks of the job.
std::string describe_member(const core::ControlSegment& control, std::uint32_t member);
/// "rank 0 waits in world for rank 1, rank 1 waits in world.1.0 for rank 0" when `wait`, of `member`, leads
/// back to it over waits that are shown; else empty. Ranks of the job.
std::string find_cycle(const core::ControlSegment& control, std::uint32_t member, const ShownWait& wait);

}  // namespace tugline::comm

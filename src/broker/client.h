// SPDX-License-Identifier: Apache-2.0
// The member's side of the broker: join a job, share segments, exchange small values. All calls are
// thread-safe; each is one request and one reply on the member's socket with a deadline, and throws
// tugline::Error (broker_lost, timed_out, permission_denied, out_of_memory, not_found, already_exists,
// protocol; invalid_usage in a forked child and after leave()).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/fork.h"
#include "base/unique_fd.h"
#include "core/control.h"
#include "core/messages.h"
#include "tugline/error.h"

namespace tugline::broker {

using MemberId = std::uint32_t;   ///< index into ControlSegment::members
using SegmentId = std::uint64_t;  ///< never reused within a broker's life

struct JoinRequest {
  std::string socket_path;  ///< empty: derived from the job name under the runtime directory
  std::string job;          ///< job name; empty: from the launcher, else private to this process
  std::string token;        ///< 64 hex digits; empty: read from the token file beside the socket
  int rank = 0;
  int size = 1;
  bool spawn_broker = true;  ///< start one if none answers (exec of the installed `tugline broker`)
  std::chrono::milliseconds deadline{10'000};
};

using core::SegmentKind;

/// How long a segment stays when nobody refers to it.
enum class Lifetime : std::uint8_t {
  referenced,  ///< goes with its last reference
  persistent,  ///< stays until removed or the broker ends
};

struct Segment {
  SegmentId id = 0;
  std::uint64_t bytes = 0;
  base::UniqueFd descriptor;  ///< sealed memfd; the caller maps it and may close it
  bool created = false;       ///< this call made it: contents are zero
};

/// What the calling process is to a client.
enum class Standing : std::uint8_t {
  member,
  forked,  ///< a child of the process that joined: the place in the job is the parent's
  left,    ///< after leave()
};

class Client {
 public:
  /// Joins, taking one slot of the control segment and holding its lifeline. Blocks until the broker answers.
  static std::shared_ptr<Client> join(const JoinRequest& request);
  virtual ~Client() = default;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  virtual MemberId member() const noexcept = 0;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  virtual const std::string& job() const noexcept = 0;
  virtual const std::string& socket_path() const noexcept = 0;
  /// Mapped as long as the client lives.
  virtual core::ControlSegment& control() const noexcept = 0;

  /// Opens the segment `name`, or makes it (zeroed, sealed, `bytes` long) if there is none. It is charged
  /// to its maker; scratch to all who refer to it, in equal parts. An existing one of another size is
  /// Error{mismatch}. Counts one reference for this member.
  virtual Segment open_or_create(std::string_view name, std::uint64_t bytes, Lifetime lifetime,
                                 SegmentKind kind = SegmentKind::scratch) = 0;
  /// A named segment that this member refers to outlives all references from now on, as if it had been made
  /// persistent; nothing if its name was removed. Any member may say so, also again.
  virtual void keep(SegmentId id) = 0;
  /// Opens an existing segment; Error{not_found} if there is none.
  virtual Segment open(std::string_view name) = 0;
  /// Makes an anonymous segment, or deposits one under a new name; Error{already_exists} if the name is
  /// taken.
  virtual Segment create(std::string_view name, std::uint64_t bytes, Lifetime lifetime,
                         SegmentKind kind = SegmentKind::buffer) = 0;
  /// Imports by id (as told by another member).
  virtual Segment import(SegmentId id) = 0;
  /// Gives back one reference of this member.
  virtual void release(SegmentId id) = 0;
  /// The same for destructors: failures are logged, and a broker that does not answer is waited for once, for
  /// a short time (see leave()). Does nothing in a forked child and after leave(), which gives back all.
  virtual void give_back(SegmentId id) noexcept = 0;
  /// Removes a persistent name; the memory goes with the last reference.
  virtual void remove(std::string_view name) = 0;

  /// What a member of the job has deposited and refers to, and the whole job's sums; core::Usage::kNobody:
  /// what is left of members that are gone.
  virtual core::UsageReport usage(MemberId member) = 0;

  /// Key-value rendezvous: values of at most 3 KiB, visible to all members of the job.
  virtual void put(std::string_view key, std::string_view value) = 0;
  /// Waits for the key; Error{timed_out} after `deadline`.
  virtual std::string get(std::string_view key, std::chrono::milliseconds deadline) = 0;
  virtual std::optional<std::string> try_get(std::string_view key) = 0;

  /// Says good-bye; afterwards the slot's state is `left` and the calls above throw Error{invalid_usage}. The
  /// others know at once; the broker is waited for, 2 s for this and all give_back() together, after which
  /// one warning says that it does not answer. Does nothing in a forked child and the second time. Called by
  /// the destructor if need be.
  virtual void leave() noexcept = 0;

  Standing standing() const noexcept {
    if (base::fork_count() != forks_) return Standing::forked;
    return left_.load(std::memory_order_relaxed) ? Standing::left : Standing::member;
  }
  /// Throws not_a_member() if it is so. Takes no lock: in a forked child a thread that is not there may hold
  /// it.
  void require_member(std::string_view operation) const {
    if (standing() != Standing::member) throw_not_a_member(operation);
  }
  /// Error{invalid_usage} that says why this process may not speak for the member; context.rank is filled in.
  Error not_a_member(ErrorContext context) const;

 protected:
  Client();
  void mark_left() noexcept { left_.store(true, std::memory_order_relaxed); }

 private:
  [[noreturn]] void throw_not_a_member(std::string_view operation) const;

  std::uint32_t forks_;
  std::int64_t owner_pid_;
  std::atomic<bool> left_{false};
};

}  // namespace tugline::broker

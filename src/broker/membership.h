// SPDX-License-Identifier: Apache-2.0
// Who is in the job: the broker's side of the control segment. Not thread-safe; the server's loop owns it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/shared_memory.h"
#include "base/unique_fd.h"
#include "broker/client.h"
#include "core/control.h"

namespace tugline::broker {

struct Member {
  MemberId id = 0;
  int rank = 0;
  std::uint16_t incarnation = 0;
  std::uint64_t connection = 0;  ///< number of its connection; never reused
  bool connected = true;
  base::UniqueFd pidfd;  ///< kept until the process has ended, unless it said good-bye
};

/// Each generation of a job (from its first member to its last) has a control segment of its own, so that
/// nothing of an earlier one can be mistaken for the present.
class Membership {
 public:
  /// `world_size` 0: the first member decides.
  explicit Membership(int world_size) noexcept : configured_size_(world_size) {}

  /// Takes a slot for a new member. Throws Error{mismatch} on another world size, Error{invalid_argument} on
  /// a rank outside it, Error{already_exists} when the rank is held by a living member, Error{out_of_memory}
  /// when all slots are in use.
  Member& join(int rank, int size, std::uint64_t connection, base::UniqueFd pidfd);

  /// Member said good-bye: state left; forgets it.
  void leave(MemberId id);
  /// Marks dead unless somebody else did, wakes everybody, and forgets the connection. The pidfd stays until
  /// process_ended().
  void died(MemberId id, core::LossCause cause);
  /// Its pidfd has fired: forgets it. The caller has called died() before.
  void process_ended(MemberId id);

  /// `launcher` (a connection's number) says that the process which was to be `rank` has ended. Unless the
  /// rank has joined this generation, it gets a dead slot that says so, and waiters are woken; a later
  /// generation begins with that. Throws Error{out_of_memory} when all slots are in use.
  void will_not_come(int rank, core::ProcessEnd end, std::uint64_t launcher);
  /// Takes that back: a new process is about to be `rank`. join() does the same.
  void may_come(int rank) noexcept;
  /// Takes back all that this launcher has said.
  void forget_launcher(std::uint64_t launcher) noexcept;
  /// Ranks that have not joined this generation and will not, in a sentence; empty if there are none.
  std::string describe_absent() const;

  Member* find(MemberId id) noexcept;
  Member* find_by_connection(std::uint64_t connection) noexcept;
  /// Members with an open connection.
  std::size_t connected() const noexcept { return connected_; }
  /// How many pidfds are held; the dead whose process has not ended are included.
  std::size_t pidfds() const noexcept;
  /// Closes the pidfds of the dead. Their slots are then not used again in this generation.
  void close_lingering_pidfds() noexcept;
  /// Or will not come.
  bool all_ranks_have_joined() const noexcept;
  /// The last one that went said good-bye (true) or died (false).
  bool last_one_left() const noexcept { return last_one_left_; }

  /// Control segment of the present generation; made by its first join().
  std::shared_ptr<const base::UniqueFd> control_descriptor() const noexcept { return control_fd_; }
  std::uint64_t control_bytes() const noexcept { return sizeof(core::ControlSegment); }

  /// Tells the members' import caches that the owner of a segment has freed it or is gone.
  void announce_retired(std::uint64_t segment) noexcept {
    if (control_mapping_) control().retired.add(segment);
  }
  /// The broker ends while members live: tells them.
  void declare_broker_lost() noexcept;
  /// Nobody is connected, and this rank or world size cannot belong to those that were.
  bool begins_anew(int rank, int size) const noexcept;
  bool in_generation() const noexcept { return size_ != 0; }
  /// No member is connected: the next join starts a new generation.
  void end_generation() noexcept;

 private:
  struct Absent {
    core::ProcessEnd end;
    std::uint64_t launcher = 0;
    std::optional<MemberId> slot;  ///< that says so in this generation
  };

  core::ControlSegment& control() const noexcept {
    return *static_cast<core::ControlSegment*>(control_mapping_.data());
  }
  void begin_generation(int size);
  MemberId free_slot() const;
  bool has_joined(int rank) const noexcept {
    return rank < size_ && rank_has_joined_[static_cast<std::size_t>(rank)];
  }
  void show(int rank, Absent& absent);
  void take_back(Absent& absent) noexcept;
  void raise_alarm() noexcept;

  int configured_size_;
  std::uint32_t generation_ = 0;
  int size_ = 0;
  std::shared_ptr<const base::UniqueFd> control_fd_;  // shared with replies that are still to be sent
  base::Mapping control_mapping_;
  std::map<MemberId, Member> members_;
  std::vector<bool> rank_has_joined_;
  std::map<int, Absent> absent_;  // by rank
  std::size_t connected_ = 0;
  bool last_one_left_ = true;
};

}  // namespace tugline::broker

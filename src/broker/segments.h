// SPDX-License-Identifier: Apache-2.0
// The segments that a broker holds, who refers to them, and who is charged for them. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "broker/client.h"
#include "core/messages.h"

namespace tugline::broker {

struct HeldSegment {
  SegmentId id = 0;
  std::string name;  ///< empty: anonymous, or removed
  std::uint64_t bytes = 0;
  /// Shared with replies that are still to be sent.
  std::shared_ptr<const base::UniqueFd> descriptor;
  Lifetime lifetime = Lifetime::referenced;
  SegmentKind kind = SegmentKind::buffer;
  MemberId creator = 0;
  std::map<MemberId, std::uint32_t> references;
};

/// Bounds on what may be deposited; 0: none.
struct SegmentLimits {
  std::uint64_t member_bytes = 0;
  std::uint64_t job_bytes = 0;
};

class SegmentTable {
 public:
  explicit SegmentTable(SegmentLimits limits) noexcept : limits_(limits) {}

  /// Finds and adds a reference. Throws Error{not_found}.
  const HeldSegment& open(const std::string& name, MemberId member);
  /// Also Error{not_found} when the segment has no name and its owner, which lives, has freed it.
  const HeldSegment& import(SegmentId id, MemberId member);
  /// Takes a descriptor over, with one reference. When the name was there, the existing one gets the
  /// reference and is returned. Throws Error{already_exists}, Error{mismatch} (other size),
  /// Error{protocol} (no sealed memfd of that size), Error{out_of_memory} (over a limit).
  struct Deposit {
    const HeldSegment* segment;
    bool created;
  };
  Deposit deposit(const core::DepositSegment& request, base::UniqueFd descriptor, MemberId member);
  /// From now on it outlives its references, if it has a name. Throws as release().
  void keep(SegmentId id, MemberId member);
  /// Throws Error{not_found} unless the member holds a reference.
  void release(SegmentId id, MemberId member);
  /// Throws Error{not_found}.
  void remove(const std::string& name);

  /// Drops all references of a member that is gone.
  void drop_member(MemberId member);
  /// Segments without a name that others refer to while their owner has freed them or is gone; each once.
  std::vector<SegmentId> take_retired() noexcept { return std::exchange(retired_, {}); }
  /// No member is left: drops all references and forgets who created what.
  void drop_all_members();

  /// What the segments tell; the broker itself fills in the rest. kNoMember: what is left of those that are
  /// gone.
  core::UsageReport usage(MemberId member) const;
  std::size_t count() const noexcept { return segments_.size(); }
  bool holds_persistent() const noexcept;

 private:
  HeldSegment& by_name(const std::string& name);
  HeldSegment& referred(SegmentId id, MemberId member);
  void drop_if_unused(SegmentId id);
  void note_retired(const HeldSegment& segment);
  /// What the member is charged for it. Scratch is used by all who refer to it, whoever made it: they share.
  static std::uint64_t share_of(const HeldSegment& segment, MemberId member) noexcept;
  void check_limits(std::uint64_t bytes, MemberId member) const;

  SegmentLimits limits_;
  SegmentId last_id_ = 0;
  std::unordered_map<SegmentId, HeldSegment> segments_;
  std::unordered_map<std::string, SegmentId> names_;
  std::uint64_t job_bytes_ = 0;
  std::vector<SegmentId> retired_;
};

/// Creator of segments whose creator's generation has ended.
inline constexpr MemberId kNoMember = core::Usage::kNobody;

}  // namespace tugline::broker

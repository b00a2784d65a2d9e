// SPDX-License-Identifier: Apache-2.0
#include "broker/segments.h"

#include <fmt/format.h>

#include <utility>

#include "base/shared_memory.h"
#include "tugline/error.h"

namespace tugline::broker {

HeldSegment& SegmentTable::by_name(const std::string& name) {
  const auto at = names_.find(name);
  if (at == names_.end())
    throw Error(ErrorCode::not_found, fmt::format("no segment is named \"{}\"", name),
                "create it first, or check the name and the job");
  return segments_.at(at->second);
}

const HeldSegment& SegmentTable::open(const std::string& name, MemberId member) {
  auto& segment = by_name(name);
  ++segment.references[member];
  return segment;
}

const HeldSegment& SegmentTable::import(SegmentId id, MemberId member) {
  const auto at = segments_.find(id);
  if (at == segments_.end())
    throw Error(ErrorCode::not_found, fmt::format("segment {} is not held by the broker (any more)", id),
                "import a segment while its owner still refers to it");
  const auto& segment = at->second;
  if (segment.name.empty() && segment.lifetime == Lifetime::referenced && segment.creator != kNoMember &&
      !segment.references.contains(segment.creator))
    throw Error(ErrorCode::not_found,
                fmt::format("segment {} was freed by its owner, member {}", id, segment.creator),
                "import a segment while its owner still refers to it");
  ++at->second.references[member];
  return at->second;
}

std::uint64_t SegmentTable::share_of(const HeldSegment& segment, MemberId member) noexcept {
  if (segment.kind != SegmentKind::scratch) return segment.creator == member ? segment.bytes : 0;
  if (!segment.references.contains(member)) return 0;
  const auto sharers = segment.references.size();
  return segment.bytes / sharers +
         (segment.references.begin()->first == member ? segment.bytes % sharers : 0);
}

void SegmentTable::check_limits(std::uint64_t bytes, MemberId member) const {
  const auto refuse = [bytes](const char* whose, std::uint64_t used, std::uint64_t limit) {
    if (limit == 0 || (used <= limit && bytes <= limit - used)) return;
    throw Error(ErrorCode::out_of_memory,
                fmt::format("{} bytes asked, {} of the {}'s {} are in use", bytes, used, whose, limit),
                "release segments, or start the broker with a higher limit");
  };
  if (limits_.member_bytes != 0) refuse("member", usage(member).member_bytes(), limits_.member_bytes);
  refuse("job", job_bytes_, limits_.job_bytes);
  // Keeps the sums from wrapping; no host has that much.
  refuse("job", job_bytes_, std::uint64_t{1} << 62);
}

SegmentTable::Deposit SegmentTable::deposit(const core::DepositSegment& request, base::UniqueFd descriptor,
                                            MemberId member) {
  if (!request.name.empty()) {
    if (const auto at = names_.find(request.name); at != names_.end()) {
      auto& existing = segments_.at(at->second);
      if (request.exclusive != 0)
        throw Error(ErrorCode::already_exists, fmt::format("a segment is named \"{}\" already", request.name),
                    "open it, or choose another name");
      if (existing.bytes != request.bytes)
        throw Error(ErrorCode::mismatch,
                    fmt::format("segment \"{}\" has {} bytes, {} are asked", request.name, existing.bytes,
                                request.bytes),
                    "use the same size everywhere, or remove the old one");
      ++existing.references[member];
      return {&existing, false};
    }
  }
  base::check_sealed(descriptor.get(), request.bytes);
  check_limits(request.bytes, member);
  HeldSegment segment;
  segment.id = ++last_id_;
  segment.name = request.name;
  segment.bytes = request.bytes;
  segment.descriptor = std::make_shared<const base::UniqueFd>(std::move(descriptor));
  segment.lifetime = request.persistent != 0 ? Lifetime::persistent : Lifetime::referenced;
  segment.kind = request.kind;
  segment.creator = member;
  segment.references[member] = 1;
  if (!request.name.empty()) names_[request.name] = segment.id;
  job_bytes_ += segment.bytes;
  return {&segments_.emplace(last_id_, std::move(segment)).first->second, true};
}

HeldSegment& SegmentTable::referred(SegmentId id, MemberId member) {
  const auto at = segments_.find(id);
  if (at == segments_.end() || !at->second.references.contains(member))
    throw Error(ErrorCode::not_found, fmt::format("this member holds no reference to segment {}", id),
                "release each reference once");
  return at->second;
}

void SegmentTable::keep(SegmentId id, MemberId member) {
  auto& segment = referred(id, member);
  if (!segment.name.empty()) segment.lifetime = Lifetime::persistent;
}

void SegmentTable::release(SegmentId id, MemberId member) {
  auto& segment = referred(id, member);
  if (const auto held = segment.references.find(member); --held->second == 0) {
    segment.references.erase(held);
    if (segment.creator == member) note_retired(segment);
  }
  drop_if_unused(id);
}

void SegmentTable::note_retired(const HeldSegment& segment) {
  if (segment.name.empty() && segment.lifetime == Lifetime::referenced && !segment.references.empty())
    retired_.push_back(segment.id);
}

void SegmentTable::remove(const std::string& name) {
  auto& segment = by_name(name);
  names_.erase(name);
  segment.name.clear();
  segment.lifetime = Lifetime::referenced;
  // From now on it is a segment like any other, whose owner may have given it back long ago.
  if (!segment.references.contains(segment.creator)) note_retired(segment);
  drop_if_unused(segment.id);
}

void SegmentTable::drop_if_unused(SegmentId id) {
  const auto at = segments_.find(id);
  if (at == segments_.end() || !at->second.references.empty() || at->second.lifetime == Lifetime::persistent)
    return;
  const auto& segment = at->second;
  if (!segment.name.empty()) names_.erase(segment.name);
  job_bytes_ -= segment.bytes;
  segments_.erase(at);
}

void SegmentTable::drop_member(MemberId member) {
  std::vector<SegmentId> touched;
  for (auto& [id, segment] : segments_) {
    const bool referred = segment.references.erase(member) != 0;
    if (referred) touched.push_back(id);
    // Its slot may go to somebody else, who must not be charged for it.
    if (segment.creator != member) continue;
    segment.creator = kNoMember;
    if (referred) note_retired(segment);
  }
  for (const auto id : touched) drop_if_unused(id);
}

void SegmentTable::drop_all_members() {
  std::vector<SegmentId> all;
  for (auto& [id, segment] : segments_) {
    segment.references.clear();
    segment.creator = kNoMember;
    all.push_back(id);
  }
  for (const auto id : all) drop_if_unused(id);
}

core::UsageReport SegmentTable::usage(MemberId member) const {
  core::UsageReport report;
  for (const auto& [id, segment] : segments_) {
    if (const auto share = share_of(segment, member); share != 0) {
      auto& bytes = segment.kind == SegmentKind::scratch  ? report.scratch_bytes
                    : segment.kind == SegmentKind::buffer ? report.buffer_bytes
                                                          : report.named_bytes;
      bytes += share;
      ++report.member_segments;
    }
    const auto held = segment.references.find(member);
    if (held == segment.references.end()) continue;
    report.member_references += held->second;
    if (segment.creator != member && segment.kind == SegmentKind::buffer)
      report.imported_bytes += segment.bytes;
  }
  report.member_limit_bytes = limits_.member_bytes;
  report.job_limit_bytes = limits_.job_bytes;
  report.job_bytes = job_bytes_;
  report.job_segments = segments_.size();
  return report;
}

bool SegmentTable::holds_persistent() const noexcept {
  for (const auto& [id, segment] : segments_)
    if (segment.lifetime == Lifetime::persistent) return true;
  return false;
}

}  // namespace tugline::broker

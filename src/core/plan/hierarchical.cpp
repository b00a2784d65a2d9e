// SPDX-License-Identifier: Apache-2.0
// Hierarchical: ranks in groups that are near to each other (a NUMA node, a last-level cache). What crosses
// from one group to another crosses once, fetched or combined by one member for all of its group, and the
// members share that work: no group has one leader through which everything goes.
//
//   all_reduce, reduce: the message is cut into lanes, as many as the largest group has members. In each
//     group one member owns a lane: it combines the group's contributions, then its own group's with those of
//     the other groups, and its group copies the result from it.
//   reduce_scatter: of every block that belongs to another group, one member combines the group's part.
//   all_gather: every block of another group is copied by one member, and by the others from it.
//   broadcast: of every chunk a group's members fetch a part each, and the others' parts from them.
//
// Several stages per chunk, each `lead` chunks behind the one before. Credits are needed by a broadcast's
// root only. Elsewhere every rank hears in every chunk from its group and, itself or through its group, from
// all others, so that whoever writes a slot again knows that its readers are done. With s stages, a rank that
// publishes chunk k has ended chunk k - 1 - (s - 1) * lead; so have, a stage's lead and a chunk before,
// those it heard from: 2 + 3 * lead slots are enough for all, 2 + 2 * lead for an all_reduce and a broadcast.
// The checker proves it.
#include <algorithm>
#include <vector>

#include "core/plan/builder_parts.h"
#include "core/plan/groups.h"

namespace tugline::core {

namespace {

constexpr std::uint8_t kPublished = 0;
constexpr std::uint8_t kPartial = 1;  ///< what one group passes to another
constexpr std::uint8_t kTotal = 2;    ///< what a member passes on to its group
constexpr std::uint8_t kCredit = 3;   ///< to a broadcast's root

std::uint64_t unsigned_of(std::int32_t count) noexcept {
  return static_cast<std::uint64_t>(count);
}

/// What the collectives below share: one rank's place in its group.
class Member {
 public:
  Member(ProgramWriter& program, const PlanRequest& request, const Pipeline& pipeline, const Groups& groups)
      : program_(program),
        request_(request),
        pipeline_(pipeline),
        groups_(groups),
        self_(program.rank()),
        group_(groups.of(self_)) {
    const auto& members = groups.members(group_);
    const auto own = static_cast<std::size_t>(groups.position(self_));
    for (std::size_t step = 1; step < members.size(); ++step)
      mates_.push_back(members[(own + step) % members.size()]);
  }

 protected:
  void signal(const std::vector<std::int32_t>& peers, std::uint8_t flag, std::uint64_t k) {
    for (const std::int32_t peer : peers) program_.signal(peer, flag, k + 1);
  }
  void wait(const std::vector<std::int32_t>& peers, std::uint8_t flag, std::uint64_t k) {
    for (const std::int32_t peer : peers) program_.wait(peer, flag, k + 1);
  }
  Place piece_of(std::int32_t rank, std::uint64_t k, std::uint64_t piece) const noexcept {
    return ProgramWriter::scratch_of(rank, pipeline_.slot(k, piece));
  }
  /// result = what the group has, in rank order: this rank's own from `own`, the others' from place(member).
  template <class PlaceOf>
  void combine_group(Place result, Place own, std::uint64_t bytes, PlaceOf place_of) {
    if (mates_.empty()) {
      program_.copy(result, own, bytes);
      return;
    }
    std::vector<Place> operands;
    for (const std::int32_t member : groups_.members(group_))
      operands.push_back(member == self_ ? own : place_of(member));
    program_.reduce(result, operands, bytes);
  }
  /// result = what place(group) has of every group, in their order.
  template <class PlaceOf>
  void combine_all(Place result, std::uint64_t bytes, PlaceOf place_of) {
    std::vector<Place> operands;
    for (std::int32_t group = 0; group < groups_.count(); ++group) operands.push_back(place_of(group));
    program_.reduce(result, operands, bytes);
    if (request_.average) program_.scale(result, bytes);
  }
  /// Runs the stages, each `lead` chunks behind the one before.
  template <class First, class Second, class Third>
  void run_stages(First first, Second second, Third third) {
    const std::uint64_t chunks = pipeline_.chunks();
    const std::uint64_t lead = pipeline_.lead;
    for (std::uint64_t i = 0; i < chunks + 2 * lead; ++i) {
      if (i < chunks) first(i);
      if (i >= lead && i - lead < chunks) second(i - lead);
      if (i >= 2 * lead) third(i - 2 * lead);
    }
  }

  ProgramWriter& program_;
  const PlanRequest& request_;
  const Pipeline& pipeline_;
  const Groups& groups_;
  const std::int32_t self_;
  const std::int32_t group_;
  std::vector<std::int32_t> mates_;  ///< the group's other members, those behind this rank first
};

/// all_reduce and reduce.
class Reduction : Member {
 public:
  Reduction(ProgramWriter& program, const PlanRequest& request, const Pipeline& pipeline,
            const Groups& groups)
      : Member(program, request, pipeline, groups) {
    for (std::int32_t lane = 0; lane < groups_.largest(); ++lane) {
      if (owner(group_, lane) != self_) continue;
      own_lanes_.push_back(lane);
      for (std::int32_t other = 0; other < groups_.count(); ++other)
        if (other != group_) partners_.push_back(owner(other, lane));
    }
    std::sort(partners_.begin(), partners_.end());
    partners_.erase(std::unique(partners_.begin(), partners_.end()), partners_.end());
  }

  void write() {
    const std::uint64_t lead = pipeline_.lead;
    const std::uint64_t chunks = pipeline_.chunks();
    for (std::uint64_t i = 0; i < chunks + 3 * lead; ++i) {
      if (i < chunks) publish(i);
      if (i >= lead && i - lead < chunks) combine(i - lead);
      if (i >= 2 * lead && i - 2 * lead < chunks) exchange(i - 2 * lead);
      if (i >= 3 * lead) collect(i - 3 * lead);
    }
  }

  static std::uint64_t pieces(const Groups& groups) noexcept {
    return unsigned_of(groups.largest() + (groups.largest() + groups.smallest() - 1) / groups.smallest());
  }

 private:
  std::int32_t owner(std::int32_t group, std::int32_t lane) const noexcept {
    return groups_.members(group)[static_cast<std::size_t>(lane % groups_.size(group))];
  }
  /// What a member publishes of a lane; at the lane's owner, what its group has of it.
  Place part(std::int32_t rank, std::int32_t lane, std::uint64_t k) const noexcept {
    return piece_of(rank, k, unsigned_of(lane));
  }
  Place total(std::int32_t rank, std::int32_t lane, std::uint64_t k) const noexcept {
    return piece_of(rank, k, unsigned_of(groups_.largest() + lane / groups_.size(groups_.of(rank))));
  }
  /// Chunk k of a lane; empty behind the end of a shorter one.
  ByteRange piece(std::int32_t lane, std::uint64_t k) const noexcept {
    const ByteRange whole = block_of(request_.bytes, request_.element_bytes, groups_.largest(), lane);
    const std::uint64_t begin = whole.begin + pipeline_.offset(k);
    return {begin, begin + pipeline_.bytes(k, whole.bytes())};
  }
  bool has_output() const noexcept {
    return request_.collective != Collective::reduce || self_ == request_.root;
  }

  void publish(std::uint64_t k) {
    for (std::int32_t lane = 0; lane < groups_.largest(); ++lane) {
      if (owner(group_, lane) == self_) continue;
      const ByteRange range = piece(lane, k);
      program_.copy(part(self_, lane, k), program_.input(range.begin), range.bytes());
    }
    signal(mates_, kPublished, k);
  }
  void combine(std::uint64_t k) {
    wait(mates_, kPublished, k);
    for (const std::int32_t lane : own_lanes_) {
      const ByteRange range = piece(lane, k);
      combine_group(part(self_, lane, k), program_.input(range.begin), range.bytes(),
                    [&](std::int32_t member) { return part(member, lane, k); });
    }
    signal(partners_, kPartial, k);
  }
  // Of a reduce, only the root's group needs the result; that the others hear of each other frees the slots.
  void exchange(std::uint64_t k) {
    wait(partners_, kPartial, k);
    const bool is_needed = request_.collective != Collective::reduce || group_ == groups_.of(request_.root);
    for (const std::int32_t lane : own_lanes_) {
      if (!is_needed) break;
      combine_all(total(self_, lane, k), piece(lane, k).bytes(),
                  [&](std::int32_t group) { return part(owner(group, lane), lane, k); });
    }
    signal(mates_, kTotal, k);
    take(self_, k);
  }
  void collect(std::uint64_t k) {
    for (const std::int32_t mate : mates_) {
      program_.wait(mate, kTotal, k + 1);
      take(mate, k);
    }
  }
  /// The results of the lanes that a member of this group owns.
  void take(std::int32_t member, std::uint64_t k) {
    if (!has_output()) return;
    for (std::int32_t lane = groups_.position(member); lane < groups_.largest();
         lane += groups_.size(group_)) {
      const ByteRange range = piece(lane, k);
      program_.copy(program_.output(range.begin), total(member, lane, k), range.bytes());
    }
  }

  std::vector<std::int32_t> own_lanes_;
  std::vector<std::int32_t> partners_;  ///< owners of these lanes in the other groups
};

/// reduce_scatter and reduce_scatter_v.
class Scatter : Member {
 public:
  Scatter(ProgramWriter& program, const PlanRequest& request, const Pipeline& pipeline, const Groups& groups)
      : Member(program, request, pipeline, groups), blocks_(request, self_) {}

  void write() {
    run_stages([&](std::uint64_t k) { publish(k); }, [&](std::uint64_t k) { combine(k); },
               [&](std::uint64_t k) { finish(k); });
  }

  static std::uint64_t pieces(const PlanRequest& request) noexcept { return unsigned_of(request.ranks); }

 private:
  /// Where `owner` has its part of the block of `rank`, or its group's part. Its own block needs no place of
  /// its own but for the group's part.
  Place part(std::int32_t owner, std::int32_t rank, std::uint64_t k) const noexcept {
    return piece_of(owner, k, unsigned_of(rank));
  }
  Place input(std::int32_t rank, std::uint64_t k) const noexcept {
    return program_.input(blocks_.sent(rank).begin + pipeline_.offset(k));
  }
  std::uint64_t bytes(std::int32_t rank, std::uint64_t k) const noexcept {
    return pipeline_.bytes(k, blocks_.sent(rank).bytes);
  }
  /// Who combines this group's part of a rank's block.
  std::int32_t combiner(std::int32_t rank) const noexcept {
    return groups_.of(rank) == group_ ? rank : groups_.server(group_, rank);
  }
  void combine_block(std::int32_t rank, std::uint64_t k) {
    combine_group(part(self_, rank, k), input(rank, k), bytes(rank, k),
                  [&](std::int32_t member) { return part(member, rank, k); });
  }

  void publish(std::uint64_t k) {
    for (std::int32_t rank = 0; rank < request_.ranks; ++rank)
      if (combiner(rank) != self_) program_.copy(part(self_, rank, k), input(rank, k), bytes(rank, k));
    signal(mates_, kPublished, k);
  }
  void combine(std::uint64_t k) {
    wait(mates_, kPublished, k);
    for (std::int32_t rank = 0; rank < request_.ranks; ++rank) {
      if (groups_.of(rank) == group_ || combiner(rank) != self_) continue;
      combine_block(rank, k);
      program_.signal(rank, kPartial, k + 1);
    }
  }
  void finish(std::uint64_t k) {
    combine_block(self_, k);
    for (std::int32_t group = 0; group < groups_.count(); ++group)
      if (group != group_) program_.wait(groups_.server(group, self_), kPartial, k + 1);
    combine_all(program_.output(pipeline_.offset(k)), bytes(self_, k), [&](std::int32_t group) {
      return part(group == group_ ? self_ : groups_.server(group, self_), self_, k);
    });
  }

  const Blocks blocks_;
};

/// all_gather and all_gather_v.
class Gather : Member {
 public:
  Gather(ProgramWriter& program, const PlanRequest& request, const Pipeline& pipeline, const Groups& groups)
      : Member(program, request, pipeline, groups), blocks_(request, self_) {
    readers_ = mates_;
    for (std::int32_t group = 0; group < groups_.count(); ++group)
      if (group != group_) readers_.push_back(groups_.server(group, self_));
    for (std::int32_t rank = 0; rank < request_.ranks; ++rank)
      if (groups_.of(rank) != group_) outsiders_.push_back(rank);
  }

  void write() {
    run_stages([&](std::uint64_t k) { publish(k); }, [&](std::uint64_t k) { relay(k); },
               [&](std::uint64_t k) { collect(k); });
  }

  static std::uint64_t pieces(const Groups& groups) noexcept {
    std::int32_t relayed = 0;
    for (std::int32_t group = 0; group < groups.count(); ++group)
      if (groups.size(group) > 1) relayed = std::max(relayed, groups.serve_count(group));
    return unsigned_of(1 + relayed);
  }

 private:
  Place output(std::int32_t rank, std::uint64_t k) const noexcept {
    return program_.output(blocks_.sent(rank).begin + pipeline_.offset(k));
  }
  std::uint64_t bytes(std::int32_t rank, std::uint64_t k) const noexcept {
    return pipeline_.bytes(k, blocks_.sent(rank).bytes);
  }
  Place published(std::int32_t rank, std::uint64_t k) const noexcept { return piece_of(rank, k, 0); }
  /// Where the member of this group that copies an outsider's block has it.
  Place relayed(std::int32_t outsider, std::uint64_t k) const noexcept {
    return piece_of(groups_.server(group_, outsider), k,
                    unsigned_of(1 + groups_.served_index(group_, outsider)));
  }

  void publish(std::uint64_t k) {
    const Place own = program_.input(pipeline_.offset(k));
    program_.copy(published(self_, k), own, bytes(self_, k));
    signal(readers_, kPublished, k);
    if (!request_.in_place) program_.copy(output(self_, k), own, bytes(self_, k));
  }
  void relay(std::uint64_t k) {
    for (const std::int32_t outsider : outsiders_) {
      if (groups_.server(group_, outsider) != self_) continue;
      program_.wait(outsider, kPublished, k + 1);
      Place from = published(outsider, k);
      if (!mates_.empty()) {
        program_.copy(relayed(outsider, k), from, bytes(outsider, k));
        from = relayed(outsider, k);
      }
      program_.copy(output(outsider, k), from, bytes(outsider, k));
    }
    signal(mates_, kTotal, k);
  }
  void collect(std::uint64_t k) {
    for (const std::int32_t mate : mates_) {
      program_.wait(mate, kPublished, k + 1);
      program_.copy(output(mate, k), published(mate, k), bytes(mate, k));
    }
    wait(mates_, kTotal, k);
    for (const std::int32_t outsider : outsiders_)
      if (groups_.server(group_, outsider) != self_)
        program_.copy(output(outsider, k), relayed(outsider, k), bytes(outsider, k));
  }

  const Blocks blocks_;
  std::vector<std::int32_t> readers_;
  std::vector<std::int32_t> outsiders_;
};

class Broadcast : Member {
 public:
  using Member::Member;

  void write() {
    const CreditRule credits{pipeline_.slots, pipeline_.chunks()};
    const std::uint64_t chunks = pipeline_.chunks();
    for (std::uint64_t i = 0; i < chunks + pipeline_.lead; ++i) {
      if (i < chunks && self_ == request_.root) publish(i, credits);
      if (i < chunks && self_ != request_.root) fetch(i, credits);
      if (i >= pipeline_.lead && group_ != groups_.of(request_.root)) collect(i - pipeline_.lead);
    }
  }

 private:
  void publish(std::uint64_t k, const CreditRule& credits) {
    const Place source = program_.input(pipeline_.offset(k));
    if (const auto credit = credits.needed(k)) {
      for (std::int32_t peer = 0; peer < request_.ranks; ++peer)
        if (peer != self_) program_.wait(peer, kCredit, credit);
    }
    program_.copy(piece_of(self_, k, 0), source, pipeline_.bytes(k));
    program_.signal(kEveryone, kPublished, k + 1);
    if (!request_.in_place) program_.copy(program_.output(pipeline_.offset(k)), source, pipeline_.bytes(k));
  }
  /// The part of a chunk that a member of this group fetches for it.
  ByteRange part(std::int32_t member, std::uint64_t k) const noexcept {
    return block_of(pipeline_.bytes(k), request_.element_bytes, groups_.size(group_),
                    groups_.position(member));
  }
  void take(std::int32_t from, ByteRange range, std::uint64_t k) {
    Place source = piece_of(from, k, 0);
    source.offset += range.begin;
    program_.copy(program_.output(pipeline_.offset(k) + range.begin), source, range.bytes());
  }

  void fetch(std::uint64_t k, const CreditRule& credits) {
    program_.wait(request_.root, kPublished, k + 1);
    if (group_ == groups_.of(request_.root)) {
      take(request_.root, {0, pipeline_.bytes(k)}, k);
    } else if (mates_.empty()) {
      take(request_.root, part(self_, k), k);
    } else {
      const ByteRange own = part(self_, k);
      Place to = piece_of(self_, k, 0);
      Place from = piece_of(request_.root, k, 0);
      to.offset += own.begin;
      from.offset += own.begin;
      program_.copy(to, from, own.bytes());
      signal(mates_, kTotal, k);
      take(self_, own, k);
    }
    if (const auto credit = credits.given(k)) program_.signal(request_.root, kCredit, credit);
  }
  void collect(std::uint64_t k) {
    for (const std::int32_t mate : mates_) {
      program_.wait(mate, kTotal, k + 1);
      take(mate, part(mate, k), k);
    }
  }
};

/// Bytes of the longest of the lanes.
std::uint64_t longest_lane(const PlanRequest& request, const Groups& groups) noexcept {
  const auto bytes = [&](std::int32_t lane) {
    return block_of(request.bytes, request.element_bytes, groups.largest(), lane).bytes();
  };
  return std::max(bytes(0), bytes(groups.largest() - 1));
}

}  // namespace

std::optional<Pipeline> hierarchical_pipeline(const PlanRequest& request) {
  if (!needs_exchange(request)) return Pipeline{.slots = 0};
  const Groups groups(request.groups);
  switch (request.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return staged_pipeline(request, longest_lane(request, groups), Reduction::pieces(groups), 4);
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
      return staged_pipeline(request, longest_block(request), Scatter::pieces(request), 5);
    case Collective::all_gather:
    case Collective::all_gather_v:
      return staged_pipeline(request, longest_block(request), Gather::pieces(groups), 5);
    case Collective::broadcast:
      return staged_pipeline(request, request.bytes, 1, 4);
    default:
      return std::nullopt;
  }
}

Plan build_hierarchical(const PlanRequest& request) {
  validate(request);
  if (!can_build("hierarchical", request)) throw_cannot_build("hierarchical", request);
  const Pipeline pipeline = *hierarchical_pipeline(request);
  Plan plan = empty_plan("hierarchical", request);
  plan.groups = request.groups;
  plan.scratch_bytes = pipeline.scratch_bytes();
  const Groups groups(request.groups);
  write_programs(plan, request, [&](ProgramWriter& program) {
    switch (request.collective) {
      case Collective::reduce_scatter:
      case Collective::reduce_scatter_v:
        return Scatter(program, request, pipeline, groups).write();
      case Collective::all_gather:
      case Collective::all_gather_v:
        return Gather(program, request, pipeline, groups).write();
      case Collective::broadcast:
        return Broadcast(program, request, pipeline, groups).write();
      default:
        return Reduction(program, request, pipeline, groups).write();
    }
  });
  return plan;
}

}  // namespace tugline::core

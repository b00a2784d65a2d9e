// SPDX-License-Identifier: Apache-2.0
// Two shot: rank b owns block b. Everyone publishes the other ranks' blocks, the owner combines them in rank
// order and publishes the result, everyone (of a reduce, the root) copies the results. Two trips, but the
// bytes that a rank reads do not grow with the number of ranks.
//
// Three stages per chunk: publish(k), combine(k - lead), collect(k - 2 * lead). No flags say that a slot is
// free again; with 2 + 2 * lead slots none are needed. A rank publishes chunk k after it has collected chunk
// k - 1 - 2 * lead, whose result says that its owner has read the published pieces. An owner that begins to
// combine chunk k has combined chunk k - 1, so it has seen everyone publish chunk k - 1, which everyone did
// after collecting chunk k - 2 - 2 * lead.
#include "core/plan/builder_parts.h"

namespace tugline::core {

namespace {

constexpr std::uint8_t kPublished = 0;
constexpr std::uint8_t kCombined = 1;

class TwoShot {
 public:
  TwoShot(ProgramWriter& program, const PlanRequest& request, const Pipeline& pipeline) noexcept
      : program_(program), request_(request), pipeline_(pipeline), self_(program.rank()) {}

  void write() {
    const std::uint64_t chunks = pipeline_.chunks();
    const std::uint64_t lead = pipeline_.lead;
    for (std::uint64_t i = 0; i < chunks + 2 * lead; ++i) {
      if (i < chunks) publish(i);
      if (i >= lead && i - lead < chunks) combine(i - lead);
      if (i >= 2 * lead) collect(i - 2 * lead);
    }
  }

 private:
  struct Piece {
    std::uint64_t offset;  ///< in input and output
    std::uint64_t bytes;
  };
  /// Chunk k of a block; empty behind the end of a shorter block.
  Piece piece(std::int32_t block, std::uint64_t k) const noexcept {
    const ByteRange range = block_of(request_.bytes, request_.element_bytes, request_.ranks, block);
    return {range.begin + pipeline_.offset(k), pipeline_.bytes(k, range.bytes())};
  }
  /// Where `owner`'s piece of chunk k lies in a publisher's scratch; the result lies in the slot's last
  /// piece.
  std::uint64_t published(std::int32_t publisher, std::int32_t owner, std::uint64_t k) const noexcept {
    return pipeline_.slot(k, static_cast<std::uint64_t>(owner < publisher ? owner : owner - 1));
  }
  std::uint64_t result(std::uint64_t k) const noexcept { return pipeline_.slot(k, pipeline_.pieces - 1); }

  /// Of a reduce, whose other ranks wait for the results all the same: see above.
  bool has_output() const noexcept {
    return request_.collective != Collective::reduce || self_ == request_.root;
  }

  template <class Visit>
  void for_peers(Visit visit) const {
    for (std::int32_t step = 1; step < request_.ranks; ++step) visit((self_ + step) % request_.ranks);
  }

  void publish(std::uint64_t k) {
    for_peers([&](std::int32_t owner) {
      const Piece part = piece(owner, k);
      program_.copy(program_.scratch(published(self_, owner, k)), program_.input(part.offset), part.bytes);
    });
    program_.signal(kEveryone, kPublished, k + 1);
  }

  void combine(std::uint64_t k) {
    const Piece part = piece(self_, k);
    if (part.bytes == 0) return;
    std::vector<Place> operands;
    for (std::int32_t peer = 0; peer < request_.ranks; ++peer) {
      if (peer != self_) program_.wait(peer, kPublished, k + 1);
      operands.push_back(peer == self_ ? program_.input(part.offset)
                                       : ProgramWriter::scratch_of(peer, published(peer, self_, k)));
    }
    const Place total = program_.scratch(result(k));
    program_.reduce(total, operands, part.bytes);
    if (request_.average) program_.scale(total, part.bytes);
    program_.signal(kEveryone, kCombined, k + 1);
    if (has_output()) program_.copy(program_.output(part.offset), total, part.bytes);
  }

  void collect(std::uint64_t k) {
    for_peers([&](std::int32_t owner) {
      const Piece part = piece(owner, k);
      if (part.bytes == 0) return;
      program_.wait(owner, kCombined, k + 1);
      if (!has_output()) return;
      program_.copy(program_.output(part.offset), ProgramWriter::scratch_of(owner, result(k)), part.bytes);
    });
  }

  ProgramWriter& program_;
  const PlanRequest& request_;
  const Pipeline& pipeline_;
  const std::int32_t self_;
};

}  // namespace

std::optional<Pipeline> two_shot_pipeline(const PlanRequest& request) noexcept {
  if (!needs_exchange(request)) return Pipeline{.slots = 0};
  const std::uint64_t first = block_of(request.bytes, request.element_bytes, request.ranks, 0).bytes();
  const std::uint64_t last =
      block_of(request.bytes, request.element_bytes, request.ranks, request.ranks - 1).bytes();
  return staged_pipeline(request, std::max(first, last), static_cast<std::uint64_t>(request.ranks), 4);
}

Plan build_two_shot(const PlanRequest& request) {
  validate(request);
  if (!can_build("two_shot", request)) throw_cannot_build("two_shot", request);
  const Pipeline pipeline = *two_shot_pipeline(request);
  Plan plan = empty_plan("two_shot", request);
  plan.scratch_bytes = pipeline.scratch_bytes();
  write_programs(plan, request, [&](ProgramWriter& program) { TwoShot(program, request, pipeline).write(); });
  return plan;
}

}  // namespace tugline::core

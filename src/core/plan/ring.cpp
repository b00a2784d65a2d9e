// SPDX-License-Identifier: Apache-2.0
// Ring: every rank reads from the rank before it only. Each link carries every byte once (twice for an
// all-reduce), whatever the number of ranks; the first byte passes through all of them.
//
// A round moves one chunk of every block. In its turn t a rank handles one block: it reads what the rank
// before it wrote in turn t - 1 and, except in the last turn, writes what the rank behind it will read.
// What a rank writes are the items of a one-way pipeline with credits, numbered through the whole operation.
// Two rounds run interleaved, so that an item is wanted two items after it was written, not at once.
#include <array>

#include "core/plan/builder_parts.h"

namespace tugline::core {

namespace {

constexpr std::uint8_t kWritten = 0;
constexpr std::uint8_t kCredit = 1;
constexpr std::uint64_t kInterleavedRounds = 2;

/// Turns in which a rank writes an item; it reads one in each of the turns 1 to that number.
std::int32_t items_per_round(const PlanRequest& request) noexcept {
  return (request.collective == Collective::all_reduce ? 2 : 1) * (request.ranks - 1);
}

class Ring {
 public:
  Ring(ProgramWriter& program, const PlanRequest& request, const Pipeline& pipeline) noexcept
      : program_(program),
        request_(request),
        pipeline_(pipeline),
        self_(program.rank()),
        previous_((self_ + request.ranks - 1) % request.ranks),
        next_((self_ + 1) % request.ranks),
        turns_(items_per_round(request)),
        blocks_(request, self_),
        credits_{pipeline.slots, pipeline.chunks() * static_cast<std::uint64_t>(turns_)} {}

  void write() {
    if (request_.collective == Collective::broadcast) {
      write_chain();
      return;
    }
    const std::uint64_t rounds = pipeline_.chunks();
    // An item may be written only if the reader of the slot's old item is never behind the same item.
    const std::uint64_t width =
        credits_.slots >= credits_.group() + kInterleavedRounds || credits_.slots >= credits_.items
            ? kInterleavedRounds
            : 1;
    for (std::uint64_t first = 0; first < rounds; first += width) {
      const std::uint64_t together = std::min(width, rounds - first);
      for (std::int32_t turn = 0; turn <= turns_; ++turn) {
        for (std::uint64_t j = 0; j < together; ++j) {
          const auto item_of = [&](std::int32_t t) {
            return first * static_cast<std::uint64_t>(turns_) + static_cast<std::uint64_t>(t) * together + j;
          };
          take_turn(first + j, turn, item_of);
        }
      }
    }
  }

 private:
  struct Piece {
    std::uint64_t input;
    std::uint64_t output;
    std::uint64_t bytes;
  };
  std::int32_t block_before(std::int32_t distance) const noexcept {
    return (self_ + 2 * request_.ranks - distance) % request_.ranks;
  }
  Piece piece_of(std::int32_t block, std::uint64_t round) const noexcept {
    const std::uint64_t offset = pipeline_.offset(round);
    const Blocks::Block& whole = blocks_.sent(block);
    switch (request_.collective) {
      case Collective::all_reduce: {
        const ByteRange range = block_of(request_.bytes, request_.element_bytes, request_.ranks, block);
        return {range.begin + offset, range.begin + offset, pipeline_.bytes(round, range.bytes())};
      }
      case Collective::reduce_scatter:
      case Collective::reduce_scatter_v:
        return {whole.begin + offset, offset, pipeline_.bytes(round, whole.bytes)};
      default:
        return {offset, whole.begin + offset, pipeline_.bytes(round, whole.bytes)};
    }
  }

  template <class ItemOf>
  void take_turn(std::uint64_t round, std::int32_t turn, ItemOf item_of) {
    const bool gathers =
        request_.collective == Collective::all_gather || request_.collective == Collective::all_gather_v;
    const Piece piece = piece_of(block_before(gathers ? turn : turn + 1), round);
    const bool reads = turn > 0;
    const bool writes = turn < turns_;
    const bool reducing = !gathers && turn < request_.ranks;
    const bool complete = gathers || turn >= request_.ranks - 1;

    Place received;
    if (reads) {
      program_.wait(previous_, kWritten, item_of(turn - 1) + 1);
      received = ProgramWriter::scratch_of(previous_, pipeline_.slot(item_of(turn - 1)));
    }
    Place made = program_.output(piece.output);
    if (writes) {
      if (auto credit = credits_.needed(item_of(turn))) program_.wait(next_, kCredit, credit);
      made = program_.scratch(pipeline_.slot(item_of(turn)));
    }
    if (!reads) {
      program_.copy(made, program_.input(piece.input), piece.bytes);
    } else if (reducing) {
      program_.reduce(made, received, program_.input(piece.input), piece.bytes);
    } else {
      program_.copy(made, received, piece.bytes);
    }
    if (request_.average && reducing && complete) program_.scale(made, piece.bytes);
    if (writes) {
      program_.signal(next_, kWritten, item_of(turn) + 1);
      // In place, an all-gather's own block is there already.
      if (complete && !(gathers && turn == 0 && request_.in_place)) {
        program_.copy(program_.output(piece.output), made, piece.bytes);
      }
    }
    if (reads) {
      if (auto credit = credits_.given(item_of(turn - 1))) program_.signal(previous_, kCredit, credit);
    }
  }

  /// Broadcast: a chain from the root to the rank before it.
  void write_chain() {
    const bool is_root = self_ == request_.root;
    const bool is_last = next_ == request_.root;
    const CreditRule credits{pipeline_.slots, pipeline_.chunks()};
    for (std::uint64_t k = 0; k < pipeline_.chunks(); ++k) {
      const std::uint64_t bytes = pipeline_.bytes(k);
      const Place output = program_.output(pipeline_.offset(k));
      const Place own = program_.scratch(pipeline_.slot(k));
      const Place source = is_root ? program_.input(pipeline_.offset(k))
                                   : ProgramWriter::scratch_of(previous_, pipeline_.slot(k));
      if (!is_root) program_.wait(previous_, kWritten, k + 1);
      if (!is_last) {
        if (auto credit = credits.needed(k)) program_.wait(next_, kCredit, credit);
        program_.copy(own, source, bytes);
        program_.signal(next_, kWritten, k + 1);
      }
      if (!is_root) {
        program_.copy(output, is_last ? source : own, bytes);
        if (auto credit = credits.given(k)) program_.signal(previous_, kCredit, credit);
      } else if (!request_.in_place) {
        program_.copy(output, source, bytes);
      }
    }
  }

  ProgramWriter& program_;
  const PlanRequest& request_;
  const Pipeline& pipeline_;
  const std::int32_t self_;
  const std::int32_t previous_;
  const std::int32_t next_;
  const std::int32_t turns_;
  const Blocks blocks_;
  const CreditRule credits_;
};

}  // namespace

std::optional<Pipeline> ring_pipeline(const PlanRequest& request) noexcept {
  if (!needs_exchange(request)) return Pipeline{.slots = 0};
  if (request.collective == Collective::broadcast) return one_way_pipeline(request, request.bytes);
  std::uint64_t length = longest_block(request);
  if (request.collective == Collective::all_reduce) {
    length =
        std::max(block_of(request.bytes, request.element_bytes, request.ranks, 0).bytes(),
                 block_of(request.bytes, request.element_bytes, request.ranks, request.ranks - 1).bytes());
  }
  // Flags count items, and every chunk is an item in each turn.
  const std::uint64_t most_rounds = kMaxFlagValue / static_cast<std::uint64_t>(items_per_round(request));
  const std::uint64_t wish = std::max(preferred_chunk(request, length), length / most_rounds + 1);
  for (std::uint64_t slots : std::array<std::uint64_t, 3>{8, 4, 2}) {
    // Every block's chunk is an item, so there are more items than chunks: keep the slots that lay_out drops.
    auto pipeline = lay_out(request, length, 1, slots, wish);
    if (!pipeline || pipeline->chunks() > most_rounds) continue;
    pipeline->slots = slots;
    if (pipeline->chunk >= std::min(wish, kShortChunkBytes) || slots == 2) return pipeline;
  }
  return std::nullopt;
}

Plan build_ring(const PlanRequest& request) {
  validate(request);
  if (!can_build("ring", request)) throw_cannot_build("ring", request);
  const Pipeline pipeline = *ring_pipeline(request);
  Plan plan = empty_plan("ring", request);
  plan.scratch_bytes = pipeline.scratch_bytes();
  write_programs(plan, request, [&](ProgramWriter& program) { Ring(program, request, pipeline).write(); });
  return plan;
}

}  // namespace tugline::core

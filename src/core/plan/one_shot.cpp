// SPDX-License-Identifier: Apache-2.0
// One shot: everyone publishes in its own scratch, everyone reads what it needs from everyone. One trip per
// chunk; bytes read grow with the number of ranks.
#include "core/plan/builder_parts.h"

namespace tugline::core {

namespace {

constexpr std::uint8_t kPublished = 0;
constexpr std::uint8_t kCredit = 1;

/// One rank's side of a one-shot plan.
class OneShot {
 public:
  OneShot(ProgramWriter& program, const PlanRequest& request, const Pipeline& pipeline) noexcept
      : program_(program),
        request_(request),
        pipeline_(pipeline),
        self_(program.rank()),
        blocks_(request, self_) {}

  void write() {
    switch (request_.collective) {
      case Collective::barrier:
        program_.signal(kEveryone, kPublished, 1);
        for_peers([&](std::int32_t peer) { program_.wait(peer, kPublished, 1); });
        break;
      case Collective::all_reduce:
        exchange([&](std::uint64_t k) { publish_input(k); }, [&](std::uint64_t k) { reduce_inputs(k); });
        break;
      case Collective::all_gather:
      case Collective::all_gather_v:
        exchange([&](std::uint64_t k) { publish_input(k); }, [&](std::uint64_t k) { gather(k); });
        break;
      case Collective::reduce_scatter:
      case Collective::reduce_scatter_v:
        exchange([&](std::uint64_t k) { publish_blocks(k); }, [&](std::uint64_t k) { reduce_block(k); });
        break;
      case Collective::all_to_all:
        exchange([&](std::uint64_t k) { publish_blocks(k); }, [&](std::uint64_t k) { collect_blocks(k); });
        break;
      case Collective::broadcast:
        from_root(
            0, [&](std::uint64_t k) { publish_input(k); },
            [&](std::uint64_t k) { return pipeline_.slot(k); });
        break;
      case Collective::reduce:
      case Collective::gather:
        to_root();
        break;
      case Collective::scatter:
        from_root(
            block(self_), [&](std::uint64_t k) { publish_blocks(k); },
            [&](std::uint64_t k) { return piece_for(request_.root, self_, k); });
        break;
      case Collective::all_to_all_v:
        exchange_pairs();
        break;
      case Collective::send_recv:
        break;
    }
  }

 private:
  template <class Publish, class Consume>
  void exchange(Publish publish, Consume consume) {
    interleave(
        pipeline_,
        [&](std::uint64_t k) {
          publish(k);
          program_.signal(kEveryone, kPublished, k + 1);
        },
        consume);
  }

  /// Peers in an order that starts behind this rank, so that not everyone reads the same one.
  template <class Visit>
  void for_peers(Visit visit) const {
    for (std::int32_t step = 1; step < request_.ranks; ++step) visit((self_ + step) % request_.ranks);
  }

  std::uint64_t block(std::int32_t index) const noexcept { return blocks_.sent(index).begin; }
  /// Bytes of chunk k of block `index`.
  std::uint64_t bytes_of(std::int32_t index, std::uint64_t k) const noexcept {
    return pipeline_.bytes(k, blocks_.sent(index).bytes);
  }
  /// Where `owner` publishes the piece for `reader` of chunk k: everyone's pieces but its own.
  std::uint64_t piece_for(std::int32_t owner, std::int32_t reader, std::uint64_t k) const noexcept {
    return pipeline_.slot(k, static_cast<std::uint64_t>(reader < owner ? reader : reader - 1));
  }
  void await(std::int32_t peer, std::uint64_t k) { program_.wait(peer, kPublished, k + 1); }

  /// Place of what `owner` publishes of chunk k, at `offset` of scratch.
  Place published(std::int32_t owner, std::uint64_t offset, std::uint64_t k) const noexcept {
    return ProgramWriter::scratch_of(pipeline_.home(owner, k), offset);
  }
  void publish(std::uint64_t offset, Place source, std::uint64_t bytes, std::uint64_t k) {
    const Place place = published(self_, offset, k);
    if (place.rank == self_) {
      program_.copy(place, source, bytes);
    } else {
      program_.put(place, source, bytes);
    }
  }
  void publish_input(std::uint64_t k) {
    publish(pipeline_.slot(k), program_.input(pipeline_.offset(k)), bytes_of(self_, k), k);
  }

  void reduce_inputs(std::uint64_t k) {
    reduce_in_rank_order(k, program_.input(pipeline_.offset(k)), program_.output(pipeline_.offset(k)),
                         [&](std::int32_t) { return pipeline_.slot(k); });
  }

  void gather(std::uint64_t k) {
    const std::uint64_t offset = pipeline_.offset(k);
    if (!request_.in_place) {
      program_.copy(program_.output(block(self_) + offset), program_.input(offset), bytes_of(self_, k));
    }
    for_peers([&](std::int32_t peer) {
      // Also where the peer's block has ended: that it has come so far is what frees the slots.
      await(peer, k);
      program_.copy(program_.output(block(peer) + offset), published(peer, pipeline_.slot(k), k),
                    bytes_of(peer, k));
    });
  }

  void publish_blocks(std::uint64_t k) {
    for_peers([&](std::int32_t peer) {
      publish(piece_for(self_, peer, k), program_.input(block(peer) + pipeline_.offset(k)), bytes_of(peer, k),
              k);
    });
  }

  void collect_blocks(std::uint64_t k) {
    const std::uint64_t offset = pipeline_.offset(k);
    const std::uint64_t bytes = pipeline_.bytes(k);
    if (!request_.in_place) {
      program_.copy(program_.output(block(self_) + offset), program_.input(block(self_) + offset), bytes);
    }
    for_peers([&](std::int32_t peer) {
      await(peer, k);
      program_.copy(program_.output(block(peer) + offset), published(peer, piece_for(peer, self_, k), k),
                    bytes);
    });
  }

  void reduce_block(std::uint64_t k) {
    const std::uint64_t offset = pipeline_.offset(k);
    reduce_in_rank_order(k, program_.input(block(self_) + offset), program_.output(offset),
                         [&](std::int32_t peer) { return piece_for(peer, self_, k); });
  }

  template <class SlotOf>
  void reduce_in_rank_order(std::uint64_t k, Place own, Place result, SlotOf slot_of) {
    std::vector<Place> operands;
    for (std::int32_t peer = 0; peer < request_.ranks; ++peer) {
      await_if_peer(peer, k);
      operands.push_back(peer == self_ ? own : published(peer, slot_of(peer), k));
    }
    program_.reduce(result, operands, bytes_of(self_, k));
    if (request_.average) program_.scale(result, bytes_of(self_, k));
  }

  void await_if_peer(std::int32_t peer, std::uint64_t k) {
    if (peer != self_) await(peer, k);
  }

  /// Broadcast and scatter: the root publishes, everyone but it reads from `slot_of(k)`; `own` is where the
  /// root's own part begins in its input.
  template <class Publish, class SlotOf>
  void from_root(std::uint64_t own, Publish publish, SlotOf slot_of) {
    const CreditRule credits{pipeline_.slots, pipeline_.chunks()};
    const std::int32_t root = request_.root;
    for (std::uint64_t k = 0; k < pipeline_.chunks(); ++k) {
      const std::uint64_t offset = pipeline_.offset(k);
      if (self_ == root) {
        if (auto credit = credits.needed(k)) {
          for_peers([&](std::int32_t peer) { program_.wait(peer, kCredit, credit); });
        }
        publish(k);
        program_.signal(kEveryone, kPublished, k + 1);
        if (!request_.in_place) {
          program_.copy(program_.output(offset), program_.input(own + offset), pipeline_.bytes(k));
        }
      } else {
        await(root, k);
        program_.copy(program_.output(offset), ProgramWriter::scratch_of(root, slot_of(k)),
                      pipeline_.bytes(k));
        if (auto credit = credits.given(k)) program_.signal(root, kCredit, credit);
      }
    }
  }

  /// Reduce and gather: everyone but the root publishes, the root reads.
  void to_root() {
    const CreditRule credits{pipeline_.slots, pipeline_.chunks()};
    const std::int32_t root = request_.root;
    for (std::uint64_t k = 0; k < pipeline_.chunks(); ++k) {
      if (self_ != root) {
        if (auto credit = credits.needed(k)) program_.wait(root, kCredit, credit);
        publish_input(k);
        program_.signal(root, kPublished, k + 1);
        continue;
      }
      if (request_.collective == Collective::gather) {
        gather(k);
      } else {
        reduce_inputs(k);
      }
      if (auto credit = credits.given(k)) {
        for_peers([&](std::int32_t peer) { program_.signal(peer, kCredit, credit); });
      }
    }
  }

  /// all_to_all_v: a pipeline with credits from every rank to every other one, each as long as its pair's
  /// block. Nobody waits in a cycle: what is published in round k needs what is collected in rounds before k,
  /// and what is collected in round k needs what is published in rounds up to k.
  void exchange_pairs() {
    const auto pair = [&](const Blocks::Block& block) {
      Pipeline own = pipeline_;
      own.length = block.bytes;
      return own;
    };
    std::uint64_t rounds = 0;
    for_peers([&](std::int32_t peer) {
      rounds = std::max({rounds, pair(blocks_.sent(peer)).chunks(), pair(blocks_.received(peer)).chunks()});
    });
    if (!request_.in_place) {
      program_.copy(program_.output(blocks_.received(self_).begin), program_.input(block(self_)),
                    blocks_.sent(self_).bytes);
    }
    for (std::uint64_t k = 0; k < rounds; ++k) {
      for_peers([&](std::int32_t peer) {
        const Pipeline out = pair(blocks_.sent(peer));
        if (k >= out.chunks()) return;
        const CreditRule credits{out.slots, out.chunks()};
        if (auto credit = credits.needed(k)) program_.wait(peer, kCredit, credit);
        program_.copy(program_.scratch(piece_for(self_, peer, k)),
                      program_.input(block(peer) + out.offset(k)), out.bytes(k));
        program_.signal(peer, kPublished, k + 1);
      });
      for_peers([&](std::int32_t peer) {
        const Pipeline in = pair(blocks_.received(peer));
        if (k >= in.chunks()) return;
        await(peer, k);
        program_.copy(program_.output(blocks_.received(peer).begin + in.offset(k)),
                      ProgramWriter::scratch_of(peer, piece_for(peer, self_, k)), in.bytes(k));
        if (auto credit = CreditRule{in.slots, in.chunks()}.given(k)) program_.signal(peer, kCredit, credit);
      });
    }
  }

  ProgramWriter& program_;
  const PlanRequest& request_;
  const Pipeline& pipeline_;
  const std::int32_t self_;
  const Blocks blocks_;
};

}  // namespace

std::optional<Pipeline> one_shot_pipeline(const PlanRequest& request) noexcept {
  if (!needs_exchange(request)) return Pipeline{.slots = 0};
  const auto peers = static_cast<std::uint64_t>(request.ranks - 1);
  switch (request.collective) {
    case Collective::barrier:
      return Pipeline{.slots = 0};
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::gather:
      return one_way_pipeline(request, request.bytes);
    case Collective::scatter:
      return one_way_pipeline(request, request.bytes, peers);
    case Collective::all_to_all:
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
      return symmetric_pipeline(request, longest_block(request), peers);
    case Collective::all_gather_v:
      return symmetric_pipeline(request, longest_block(request), 1);
    case Collective::all_to_all_v:
      return pair_pipeline(request);
    default:
      return symmetric_pipeline(request, request.bytes, 1);
  }
}

Plan build_one_shot(const PlanRequest& request) {
  validate(request);
  if (!can_build("one_shot", request)) throw_cannot_build("one_shot", request);
  const Pipeline pipeline = *one_shot_pipeline(request);
  Plan plan = empty_plan("one_shot", request);
  plan.scratch_bytes = pipeline.scratch_bytes();
  plan.trades_scratch = pipeline.ends_traded();
  write_programs(plan, request, [&](ProgramWriter& program) { OneShot(program, request, pipeline).write(); });
  return plan;
}

}  // namespace tugline::core

// SPDX-License-Identifier: Apache-2.0
// Direct: where all ranks can reach the buffers of all, every byte goes from where it is to where it belongs.
// Nothing is copied through scratch. A rank that must combine or deliver writes into the others' outputs, for
// a store needs no answer from the other core's cache while a load waits for one; where every rank takes
// something else, it reads. At the end everyone waits until nobody is at its buffers any more.
#include "core/plan/builder_parts.h"

namespace tugline::core {

namespace {

constexpr std::uint8_t kDone = 0;
constexpr std::int32_t kSender = 0;
constexpr std::int32_t kReceiver = 1;
// What is combined is written to every rank while it lies in the first-level cache.
constexpr std::uint64_t kPieceBytes = 8 << 10;

class Direct {
 public:
  Direct(ProgramWriter& program, const PlanRequest& request) noexcept
      : program_(program), request_(request), self_(program.rank()), blocks_(request, self_) {}

  void write() {
    switch (request_.collective) {
      case Collective::all_reduce:
        all_reduce();
        break;
      case Collective::reduce_scatter:
      case Collective::reduce_scatter_v:
        in_pieces({0, bytes(self_)}, [&](ByteRange piece) {
          combine(program_.output(piece.begin), block(self_) + piece.begin, piece.bytes());
        });
        break;
      case Collective::all_gather:
      case Collective::all_gather_v:
        if (!request_.in_place) program_.copy(program_.output(block(self_)), program_.input(0), bytes(self_));
        for_peers([&](std::int32_t peer) {
          program_.put(ProgramWriter::output_of(peer, block(self_)), program_.input(0), bytes(self_));
        });
        break;
      case Collective::broadcast:
        if (self_ != request_.root) {
          program_.copy(program_.output(0), ProgramWriter::input_of(request_.root, 0), request_.bytes);
        } else if (!request_.in_place) {
          program_.copy(program_.output(0), program_.input(0), request_.bytes);
        }
        break;
      case Collective::all_to_all:
        program_.copy(program_.output(block(self_)), program_.input(block(self_)), request_.bytes);
        for_peers([&](std::int32_t peer) {
          program_.copy(program_.output(block(peer)), ProgramWriter::input_of(peer, block(self_)),
                        request_.bytes);
        });
        break;
      case Collective::reduce:
        if (self_ == request_.root)
          in_pieces({0, request_.bytes}, [&](ByteRange piece) {
            combine(program_.output(piece.begin), piece.begin, piece.bytes());
          });
        break;
      case Collective::gather:
        if (self_ != request_.root) {
          program_.put(ProgramWriter::output_of(request_.root, block(self_)), program_.input(0),
                       request_.bytes);
        } else if (!request_.in_place) {
          program_.copy(program_.output(block(self_)), program_.input(0), request_.bytes);
        }
        break;
      case Collective::scatter:
        if (self_ != request_.root) {
          program_.copy(program_.output(0), ProgramWriter::input_of(request_.root, block(self_)),
                        request_.bytes);
        } else if (!request_.in_place) {
          program_.copy(program_.output(0), program_.input(block(self_)), request_.bytes);
        }
        break;
      case Collective::all_to_all_v:
        program_.copy(program_.output(blocks_.received(self_).begin), program_.input(block(self_)),
                      bytes(self_));
        for_peers([&](std::int32_t peer) {
          program_.copy(program_.output(blocks_.received(peer).begin),
                        ProgramWriter::input_of(peer, begin_at(peer)), blocks_.received(peer).bytes);
        });
        break;
      case Collective::barrier:
        break;
      case Collective::send_recv:
        if (self_ == kReceiver)
          program_.copy(program_.output(0), ProgramWriter::input_of(kSender, 0), request_.bytes);
        break;
    }
    for_peers([&](std::int32_t peer) {
      if (touches(self_, peer)) program_.signal(peer, kDone, 1);
    });
    for_peers([&](std::int32_t peer) {
      if (touches(peer, self_)) program_.wait(peer, kDone, 1);
    });
  }

 private:
  template <class Visit>
  void for_peers(Visit visit) const {
    for (std::int32_t step = 1; step < request_.ranks; ++step) visit((self_ + step) % request_.ranks);
  }
  /// Whether `rank` reads or writes buffers of `owner`.
  bool touches(std::int32_t rank, std::int32_t owner) const noexcept {
    switch (request_.collective) {
      // By pair, which is all that a rank knows: one that has nothing may not know that others have
      // something.
      case Collective::all_to_all_v:
        return (rank == self_ ? blocks_.received(owner) : blocks_.sent(rank)).bytes > 0;
      case Collective::all_reduce:
        return block_of(request_.bytes, request_.element_bytes, request_.ranks, rank).bytes() > 0;
      case Collective::broadcast:
      case Collective::gather:
      case Collective::scatter:
        return owner == request_.root;
      case Collective::reduce:
        return rank == request_.root;
      case Collective::send_recv:
        return rank == kReceiver;
      default:
        return true;
    }
  }
  std::uint64_t block(std::int32_t index) const noexcept { return blocks_.sent(index).begin; }
  std::uint64_t bytes(std::int32_t index) const noexcept { return blocks_.sent(index).bytes; }
  /// Of all_to_all_v: where this rank's block begins in the input of a peer.
  std::uint64_t begin_at(std::int32_t peer) const {
    if (request_.only_rank >= 0) return request_.peer_begins[static_cast<std::size_t>(peer)];
    return Blocks(request_, peer).sent(self_).begin;
  }
  template <class Visit>
  void in_pieces(ByteRange range, Visit visit) const {
    const std::uint64_t piece =
        std::max(kPieceBytes / request_.element_bytes, std::uint64_t{1}) * request_.element_bytes;
    for (auto at = range.begin; at < range.end; at += piece) visit({at, std::min(at + piece, range.end)});
  }

  void combine(Place result, std::uint64_t offset, std::uint64_t bytes) {
    std::vector<Place> operands;
    for (std::int32_t rank = 0; rank < request_.ranks; ++rank)
      operands.push_back(ProgramWriter::input_of(rank, offset));
    program_.reduce(result, operands, bytes);
    if (request_.average) program_.scale(result, bytes);
  }

  void all_reduce() {
    const ByteRange own = block_of(request_.bytes, request_.element_bytes, request_.ranks, self_);
    in_pieces(own, [&](ByteRange piece) {
      combine(program_.output(piece.begin), piece.begin, piece.bytes());
      for_peers([&](std::int32_t peer) {
        program_.put(ProgramWriter::output_of(peer, piece.begin), program_.output(piece.begin),
                     piece.bytes());
      });
    });
  }

  ProgramWriter& program_;
  const PlanRequest& request_;
  const std::int32_t self_;
  const Blocks blocks_;
};

}  // namespace

bool can_build_direct(const PlanRequest& request) noexcept {
  if (!request.direct || request.pre_multiplied || !needs_exchange(request)) return false;
  if (request.collective == Collective::barrier) return false;
  const bool to_all =
      request.collective == Collective::all_to_all || request.collective == Collective::all_to_all_v;
  // In place, the blocks of an all_to_all would have to change places through something.
  if (to_all && request.in_place) return false;
  return request.collective != Collective::all_to_all_v || request.only_rank < 0 ||
         request.peer_begins.size() == static_cast<std::size_t>(request.ranks);
}

Plan build_direct(const PlanRequest& request) {
  validate(request);
  if (!can_build("direct", request)) throw_cannot_build("direct", request);
  Plan plan = empty_plan("direct", request);
  plan.direct = true;
  write_programs(plan, request, [&](ProgramWriter& program) { Direct(program, request).write(); });
  return plan;
}

}  // namespace tugline::core

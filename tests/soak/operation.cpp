// SPDX-License-Identifier: Apache-2.0
#include "soak/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "soak/contents.h"

namespace tugline::soak {
namespace {

/// Bytes before and behind a buffer that nobody may touch.
constexpr std::size_t kGuard = 64;
constexpr std::byte kUntouched{0x5a};

}  // namespace

Operation::Place Operation::take(std::size_t bytes, Sequence& own, Shelf& shelf) const {
  // Any address: a multiple of the element's size, of a cache line, or neither.
  const std::size_t shift = own.below(3) == 0 ? own.below(64) : own.below(8) * size_of(draw_.type);
  Place place;
  place.memory = shelf.take(own, bytes + shift + 2 * kGuard);
  place.begin = place.memory->data() + shift;
  place.data = place.begin + kGuard;
  place.bytes = bytes;
  return place;
}

Operation::Operation(const Draw& draw, int rank, int ranks, Sequence& own, Shelf& shelf)
    : draw_(draw), rank_(rank), ranks_(ranks), shape_(shape_of(draw, rank, ranks)) {
  if (draw.kind == Kind::barrier) return;
  const std::size_t width = size_of(draw.type);
  in_place_ = shape_.in_place.has_value() && own.below(2) == 0;
  if (in_place_) {
    const auto shift = *shape_.in_place;
    const auto send_at = static_cast<std::size_t>(std::max<std::ptrdiff_t>(-shift, 0));
    const auto recv_at = static_cast<std::size_t>(std::max<std::ptrdiff_t>(shift, 0));
    const auto elements = std::max(send_at + shape_.send_elements, recv_at + shape_.recv_elements);
    recv_place_ = take(elements * width, own, shelf);
    send_ = recv_place_.data + send_at * width;
    recv_ = recv_place_.data + recv_at * width;
    return;
  }
  const bool null_allowed = own.below(2) == 0;
  if (shape_.has_send || !null_allowed) {
    send_place_ = take(shape_.send_elements * width, own, shelf);
    send_ = send_place_.data;
  }
  if (shape_.has_recv || !null_allowed) {
    recv_place_ = take(shape_.recv_elements * width, own, shelf);
    recv_ = recv_place_.data;
  }
}

void Operation::fill() {
  for (const Place* place : {&send_place_, &recv_place_})
    if (place->begin != nullptr)
      std::memset(place->begin, static_cast<int>(kUntouched), place->bytes + 2 * kGuard);
  for (const auto& piece : shape_.sent) write_piece(draw_, piece, ranks_, send_);
}

void Operation::begin(Communicator& comm, Target target) {
  const auto reduction = [&]() -> Reduction {
    if (!draw_.pre_multiplied) return draw_.op;
    const int factor = factor_of(draw_, rank_);
    if (draw_.type < DataType::f16) return Reduction::pre_mul_sum(factor);
    return Reduction::pre_mul_sum(static_cast<double>(factor));
  };
  const auto counts = [&] {
    std::vector<std::size_t> all;
    for (int rank = 0; rank < ranks_; ++rank) all.push_back(block_count(draw_, rank));
    return all;
  };
  const auto& [kind, type, op, multiplied, symmetric, count, root, peer, salt] = draw_;
  switch (kind) {
    case Kind::all_reduce:
      return comm.all_reduce(send_, recv_, count, type, reduction(), target);
    case Kind::all_gather:
      return comm.all_gather(send_, recv_, count, type, target);
    case Kind::reduce_scatter:
      return comm.reduce_scatter(send_, recv_, count, type, reduction(), target);
    case Kind::reduce:
      return comm.reduce(send_, recv_, count, type, reduction(), root, target);
    case Kind::gather:
      return comm.gather(send_, recv_, count, type, root, target);
    case Kind::scatter:
      return comm.scatter(send_, recv_, count, type, root, target);
    case Kind::broadcast:
      return comm.broadcast(send_, recv_, count, type, root, target);
    case Kind::all_to_all:
      return comm.all_to_all(send_, recv_, count, type, target);
    case Kind::all_gather_v:
      return comm.all_gather_v(send_, recv_, counts(), type, target);
    case Kind::reduce_scatter_v:
      return comm.reduce_scatter_v(send_, recv_, counts(), type, reduction(), target);
    case Kind::all_to_all_v: {
      const Blocks out = blocks_sent(draw_, rank_, ranks_);
      const Blocks in = blocks_received(draw_, rank_, ranks_);
      return comm.all_to_all_v(send_, out.counts, out.displacements, recv_, in.counts, in.displacements, type,
                               target);
    }
    case Kind::barrier:
      return comm.barrier(target);
    case Kind::message:
      if (rank_ == root) comm.send(send_, count, type, peer, target);
      if (rank_ == peer) comm.recv(recv_, count, type, root, target);
      return;
    case Kind::shift:
      comm.send(send_, count, type, (rank_ + peer) % ranks_, target);
      comm.recv(recv_, count, type, (rank_ + ranks_ - peer) % ranks_, target);
      return;
  }
}

void Operation::check() const {
  check_pieces(shape_.received, recv_, "result");
  if (in_place_) {
    // Blocks that are only read may be used up; what lies around both buffers may not.
    const std::size_t elements = recv_place_.bytes / size_of(draw_.type);
    check_untouched(recv_place_, {{0, elements, 0, 0}}, "memory beside the buffer");
    return;
  }
  check_pieces(shape_.sent, send_, "input");
  if (send_place_.begin != nullptr) check_untouched(send_place_, shape_.sent, "input's surroundings");
  if (recv_place_.begin != nullptr) check_untouched(recv_place_, shape_.received, "result's surroundings");
}

void Operation::check_pieces(const std::vector<Piece>& pieces, const std::byte* buffer,
                             const char* what) const {
  for (const auto& piece : pieces) {
    const auto wrong = first_wrong(draw_, piece, ranks_, buffer);
    if (wrong == piece.count) continue;
    throw Wrong(fmt::format(
        "{}: the {} is wrong at element {} of {} of block {} (from {})", text(), what, wrong, piece.count,
        piece.block,
        piece.source == kAll ? std::string("all ranks") : "rank " + std::to_string(piece.source)));
  }
}

// The pieces lie in order.
void Operation::check_untouched(const Place& place, const std::vector<Piece>& used, const char* what) const {
  const std::size_t width = size_of(draw_.type);
  const auto look = [&](const std::byte* from, const std::byte* to) {
    const auto* touched = std::find_if(from, to, [](std::byte value) { return value != kUntouched; });
    if (touched == to) return;
    throw Wrong(fmt::format("{}: the {} was written to, at byte {} of a buffer of {} bytes", text(), what,
                            touched - place.data, place.bytes));
  };
  const std::byte* from = place.begin;
  for (const auto& piece : used) {
    look(from, place.data + piece.at * width);
    from = place.data + (piece.at + piece.count) * width;
  }
  look(from, place.data + place.bytes + kGuard);
}

bool Operation::spoil() {
  for (const auto& piece : shape_.received) {
    if (piece.count == 0) continue;
    recv_[(piece.at + piece.count) * size_of(draw_.type) - 1] ^= std::byte{1};
    return true;
  }
  return false;
}

std::string Operation::text() const {
  const auto place = [](const Place& where, const std::byte* data) {
    constexpr const char* kNames[] = {"private", "library", "pool", "registered"};
    if (data == nullptr) return std::string("none");
    return fmt::format("{} (address mod 64: {})", kNames[static_cast<std::size_t>(where.memory->kind())],
                       reinterpret_cast<std::uintptr_t>(data) % 64);
  };
  if (in_place_)
    return fmt::format("{} at rank {} of {}, in place in {}", to_text(draw_), rank_, ranks_,
                       place(recv_place_, recv_));
  return fmt::format("{} at rank {} of {}, from {} to {}", to_text(draw_), rank_, ranks_,
                     place(send_place_, send_), place(recv_place_, recv_));
}

}  // namespace tugline::soak

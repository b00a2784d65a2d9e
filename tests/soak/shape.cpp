// SPDX-License-Identifier: Apache-2.0
#include "soak/shape.h"

namespace tugline::soak {
namespace {

/// Elements between two blocks of all_to_all_v, which nobody may touch.
constexpr std::size_t kGap = 3;

template <class Count>
Blocks blocks_of(int ranks, Count count) {
  Blocks blocks;
  std::size_t at = 0;
  for (int peer = 0; peer < ranks; ++peer) {
    blocks.counts.push_back(count(peer));
    blocks.displacements.push_back(at);
    at += blocks.counts.back() + kGap;
  }
  return blocks;
}

std::size_t end_of(const std::vector<Piece>& pieces) noexcept {
  std::size_t end = 0;
  for (const auto& piece : pieces) end = std::max(end, piece.at + piece.count);
  return end;
}

}  // namespace

Blocks blocks_sent(const Draw& draw, int rank, int ranks) {
  return blocks_of(ranks, [&](int to) { return block_count(draw, rank, to); });
}

Blocks blocks_received(const Draw& draw, int rank, int ranks) {
  return blocks_of(ranks, [&](int from) { return block_count(draw, from, rank); });
}

Shape shape_of(const Draw& draw, int rank, int ranks) {
  Shape shape;
  const bool at_root = rank == draw.root;
  const auto count = draw.count;
  const auto own = static_cast<std::ptrdiff_t>(count) * rank;
  shape.has_send = shape.has_recv = true;
  // One block for every rank, in its order.
  const auto send_each = [&](auto count_of) {
    std::size_t at = 0;
    for (int to = 0; to < ranks; ++to) {
      shape.sent.push_back({at, count_of(to), rank, to});
      at += count_of(to);
    }
  };
  const auto receive_each = [&](int block, auto count_of) {
    std::size_t at = 0;
    for (int from = 0; from < ranks; ++from) {
      shape.received.push_back({at, count_of(from), from, block});
      at += count_of(from);
    }
  };
  const auto equal = [&](int) { return count; };
  const auto varying = [&](int of) { return block_count(draw, of); };
  std::ptrdiff_t before = 0;
  for (int other = 0; other < rank; ++other) before += static_cast<std::ptrdiff_t>(block_count(draw, other));

  switch (draw.kind) {
    case Kind::barrier:
      shape.has_send = shape.has_recv = false;
      break;
    case Kind::all_reduce:
      shape.sent = {{0, count, rank, 0}};
      shape.received = {{0, count, kAll, 0}};
      shape.in_place = 0;
      break;
    case Kind::reduce:
      shape.sent = {{0, count, rank, 0}};
      if (at_root) shape.received = {{0, count, kAll, 0}};
      if (at_root) shape.in_place = 0;
      shape.has_recv = at_root;
      break;
    case Kind::all_gather:
    case Kind::gather:
      shape.sent = {{0, count, rank, 0}};
      shape.has_recv = draw.kind == Kind::all_gather || at_root;
      if (shape.has_recv) receive_each(0, equal);
      if (shape.has_recv) shape.in_place = -own;
      break;
    case Kind::scatter:
      shape.has_send = at_root;
      if (at_root) send_each(equal);
      if (at_root) shape.in_place = own;
      shape.received = {{0, count, draw.root, rank}};
      break;
    case Kind::reduce_scatter:
      send_each(equal);
      shape.received = {{0, count, kAll, rank}};
      shape.in_place = own;
      break;
    case Kind::broadcast:
      shape.has_send = at_root;
      if (at_root) shape.sent = {{0, count, rank, 0}};
      shape.received = {{0, count, draw.root, 0}};
      shape.in_place = 0;
      break;
    case Kind::all_to_all:
      send_each(equal);
      receive_each(rank, equal);
      shape.in_place = 0;
      break;
    case Kind::all_gather_v:
      shape.sent = {{0, varying(rank), rank, 0}};
      receive_each(0, varying);
      shape.in_place = -before;
      break;
    case Kind::reduce_scatter_v:
      send_each(varying);
      shape.received = {{0, varying(rank), kAll, rank}};
      shape.in_place = before;
      break;
    case Kind::all_to_all_v: {
      const Blocks out = blocks_sent(draw, rank, ranks);
      const Blocks in = blocks_received(draw, rank, ranks);
      for (int peer = 0; peer < ranks; ++peer) {
        const auto at = static_cast<std::size_t>(peer);
        shape.sent.push_back({out.displacements[at], out.counts[at], rank, peer});
        shape.received.push_back({in.displacements[at], in.counts[at], peer, rank});
      }
      if (draw.symmetric) shape.in_place = 0;
      break;
    }
    case Kind::message:
      shape.has_send = at_root;
      shape.has_recv = rank == draw.peer;
      if (shape.has_send) shape.sent = {{0, count, rank, 0}};
      if (shape.has_recv) shape.received = {{0, count, draw.root, 0}};
      break;
    case Kind::shift:
      shape.sent = {{0, count, rank, 0}};
      shape.received = {{0, count, (rank + ranks - draw.peer) % ranks, 0}};
      break;
  }
  shape.send_elements = end_of(shape.sent);
  shape.recv_elements = end_of(shape.received);
  // Whoever is not asked for a buffer may have one all the same; it is to stay as it is.
  if (!shape.has_recv && draw.kind != Kind::barrier) shape.recv_elements = count;
  return shape;
}

}  // namespace tugline::soak

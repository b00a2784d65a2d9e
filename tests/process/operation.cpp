// SPDX-License-Identifier: Apache-2.0
#include "operation.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "inputs.h"

namespace tugline::process {
namespace {

constexpr std::uint32_t kAbandoned = 0xabadbeef;

// Elements have four bytes; words hold either type.
template <class T>
std::span<T> as(Words& words) {
  return {reinterpret_cast<T*>(words.span().data()), words.span().size()};
}
template <class T>
std::span<const T> as(const Words& words) {
  return {reinterpret_cast<const T*>(words.span().data()), words.span().size()};
}

/// Elements of a block of its own size, of all_to_all_v between two ranks.
std::size_t share_of(std::size_t count, std::size_t index) noexcept {
  return count / (1 + index % 3);
}

std::vector<std::size_t> shares(std::size_t count, std::size_t size, std::size_t first) {
  std::vector<std::size_t> counts;
  for (std::size_t rank = 0; rank < size; ++rank) counts.push_back(share_of(count, first + rank));
  return counts;
}

std::size_t sum_before(const std::vector<std::size_t>& counts, std::size_t rank) noexcept {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(rank), std::size_t{0});
}

}  // namespace

std::vector<Draw> draw_step(std::uint64_t seed, std::uint64_t step, std::size_t max_bytes) {
  Sequence random(seed * 0x2545f4914f6cdd1du + step);
  std::vector<Draw> draws(1 + random.below(4));
  const auto octaves = static_cast<std::uint64_t>(std::bit_width(max_bytes / 8));
  for (auto& draw : draws) {
    // Any of them, all-reduces more often.
    const auto kind = random.below(kKindCount + 4);
    draw.kind = &draw == &draws.front() || kind >= kKindCount ? Kind::all_reduce : static_cast<Kind>(kind);
    draw.type = random.below(2) == 0 ? DataType::f32 : DataType::i32;
    const auto octave = std::size_t{8} << random.below(octaves);
    draw.bytes = std::min(max_bytes, octave + random.below(octave)) / 4 * 4;
    draw.salt = random.below(1000);
    draw.library = random.below(2) == 0;
  }
  return draws;
}

Words::Words(std::size_t count, Job* library) {
  if (library != nullptr)
    shared_.emplace(library->allocate<std::uint32_t>(count));
  else
    own_.resize(count);
}

Operation::Operation(const Draw& draw, const std::vector<std::uint32_t>& members, std::uint32_t self,
                     Job* job)
    : draw_(draw), members_(members), self_(self), count_(draw.bytes / 4) {
  const auto size = members.size();
  const bool wide_input = draw.kind == Kind::reduce_scatter || draw.kind == Kind::all_to_all ||
                          draw.kind == Kind::scatter || draw.kind == Kind::reduce_scatter_v ||
                          draw.kind == Kind::all_to_all_v;
  const bool wide_output = draw.kind == Kind::all_gather || draw.kind == Kind::all_to_all ||
                           draw.kind == Kind::gather || draw.kind == Kind::all_gather_v ||
                           draw.kind == Kind::all_to_all_v;
  if (draw.kind == Kind::barrier) return;
  send_ = Words(wide_input ? count_ * size : count_, draw.library ? job : nullptr);
  recv_ = Words(wide_output ? count_ * size : count_, draw.library ? job : nullptr);
  std::ranges::fill(recv_.span(), 0xffffffffu);
  if (draw.type == DataType::f32)
    fill(as<float>(send_), members[self], draw.salt);
  else
    fill(as<std::int32_t>(send_), members[self], draw.salt);
}

void Operation::run(Communicator& comm, const Target& target) {
  const auto size = static_cast<std::uint32_t>(members_.size());
  const auto root = static_cast<int>(draw_.salt % size);
  switch (draw_.kind) {
    case Kind::all_reduce:
      return comm.all_reduce(send_.data(), recv_.data(), count_, draw_.type, ReduceOp::sum, target);
    case Kind::all_gather:
      return comm.all_gather(send_.data(), recv_.data(), count_, draw_.type, target);
    case Kind::reduce_scatter:
      return comm.reduce_scatter(send_.data(), recv_.data(), count_, draw_.type, ReduceOp::sum, target);
    case Kind::broadcast:
      return comm.broadcast(send_.data(), recv_.data(), count_, draw_.type, root, target);
    case Kind::all_to_all:
      return comm.all_to_all(send_.data(), recv_.data(), count_, draw_.type, target);
    case Kind::barrier:
      return comm.barrier(target);
    case Kind::reduce:
      return comm.reduce(send_.data(), is_root() ? recv_.data() : nullptr, count_, draw_.type, ReduceOp::sum,
                         root, target);
    case Kind::gather:
      return comm.gather(send_.data(), is_root() ? recv_.data() : nullptr, count_, draw_.type, root, target);
    case Kind::scatter:
      return comm.scatter(is_root() ? send_.data() : nullptr, recv_.data(), count_, draw_.type, root, target);
    case Kind::all_gather_v:
      return comm.all_gather_v(send_.data(), recv_.data(), shares(count_, size, 0), draw_.type, target);
    case Kind::reduce_scatter_v:
      return comm.reduce_scatter_v(send_.data(), recv_.data(), shares(count_, size, 0), draw_.type,
                                   ReduceOp::sum, target);
    case Kind::all_to_all_v: {
      const auto counts = shares(count_, size, self_);
      std::vector<std::size_t> at;
      for (std::size_t peer = 0; peer < size; ++peer) at.push_back(peer * count_);
      return comm.all_to_all_v(send_.data(), counts, at, recv_.data(), counts, at, draw_.type, target);
    }
    case Kind::ring_of_messages: {
      Group group;
      comm.send(send_.data(), count_, draw_.type, static_cast<int>((self_ + 1) % size), group);
      comm.recv(recv_.data(), count_, draw_.type, static_cast<int>((self_ + size - 1) % size), group);
      if (target.has_stream())
        group.run(target.stream());
      else
        group.run();
      return;
    }
  }
}

template <class T>
bool Operation::is_right_as() const {
  const auto result = as<T>(recv_);
  const auto size = members_.size();
  const auto block = [&](std::size_t rank) { return result.subspan(rank * count_, count_); };
  switch (draw_.kind) {
    case Kind::all_reduce:
      return is_sum(result, members_, draw_.salt, 0);
    case Kind::reduce_scatter:
      return is_sum(result, members_, draw_.salt, self_ * count_);
    case Kind::broadcast:
      return is_sum(result, {members_[draw_.salt % size]}, draw_.salt, 0);
    case Kind::ring_of_messages:
      return is_sum(result, {members_[(self_ + size - 1) % size]}, draw_.salt, 0);
    case Kind::all_gather:
    case Kind::all_to_all: {
      const auto first = draw_.kind == Kind::all_to_all ? self_ * count_ : 0;
      for (std::size_t rank = 0; rank < size; ++rank)
        if (!is_sum(block(rank), {members_[rank]}, draw_.salt, first)) return false;
      return true;
    }
    case Kind::barrier:
      return true;
    case Kind::reduce:
      return !is_root() || is_sum(result, members_, draw_.salt, 0);
    case Kind::gather:
      for (std::size_t rank = 0; is_root() && rank < size; ++rank)
        if (!is_sum(block(rank), {members_[rank]}, draw_.salt, 0)) return false;
      return true;
    case Kind::scatter:
      return is_sum(result, {members_[draw_.salt % size]}, draw_.salt, self_ * count_);
    case Kind::reduce_scatter_v: {
      const auto counts = shares(count_, size, 0);
      return is_sum(result.first(counts[self_]), members_, draw_.salt, sum_before(counts, self_));
    }
    case Kind::all_gather_v: {
      const auto counts = shares(count_, size, 0);
      for (std::size_t rank = 0; rank < size; ++rank)
        if (!is_sum(result.subspan(sum_before(counts, rank), counts[rank]), {members_[rank]}, draw_.salt, 0))
          return false;
      return true;
    }
    case Kind::all_to_all_v:
      for (std::size_t rank = 0; rank < size; ++rank)
        if (!is_sum(block(rank).first(share_of(count_, self_ + rank)), {members_[rank]}, draw_.salt,
                    self_ * count_))
          return false;
      return true;
  }
  return false;
}

bool Operation::is_right() const {
  return draw_.type == DataType::f32 ? is_right_as<float>() : is_right_as<std::int32_t>();
}

void Operation::abandon() {
  for (Words* words : {&send_, &recv_}) std::ranges::fill(words->span(), kAbandoned);
}

bool Operation::is_as_abandoned() const noexcept {
  for (const Words* words : {&send_, &recv_})
    for (const std::uint32_t word : words->span())
      if (word != kAbandoned) return false;
  return true;
}

std::uint64_t Operation::shared_hash(std::uint64_t hash) const noexcept {
  // Of all_gather_v what lies behind the blocks is as it was, on all ranks.
  const bool shared = draw_.kind == Kind::all_reduce || draw_.kind == Kind::all_gather ||
                      draw_.kind == Kind::broadcast || draw_.kind == Kind::all_gather_v;
  return shared ? hash_of(recv_.span(), hash) : hash;
}

}  // namespace tugline::process

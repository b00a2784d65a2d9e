// SPDX-License-Identifier: Apache-2.0
#include "plan_interpreter.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <tuple>

namespace tugline::core::test {

namespace {

using Bytes = std::vector<std::uint8_t>;

/// destination = left op right for one element: every byte depends on the whole of both elements.
void combine(std::uint8_t* destination, const std::uint8_t* left, const std::uint8_t* right,
             std::uint64_t element_bytes) {
  std::uint64_t hash = 1469598103934665603u;
  for (std::uint64_t i = 0; i < element_bytes; ++i) hash = (hash ^ left[i]) * 1099511628211u;
  hash = (hash << 7 | hash >> 57) + 0x9e3779b97f4a7c15u;
  for (std::uint64_t i = 0; i < element_bytes; ++i) hash = (hash ^ right[i]) * 1099511628211u;
  for (std::uint64_t i = 0; i < element_bytes; ++i) {
    destination[i] = static_cast<std::uint8_t>(hash >> (8 * (i % 8)) ^ i);
  }
}

void scale_element(std::uint8_t* element, std::uint64_t element_bytes) {
  for (std::uint64_t i = 0; i < element_bytes; ++i) {
    element[i] = static_cast<std::uint8_t>(element[i] * 7 + 3);
  }
}

class Machine {
 public:
  explicit Machine(const Plan& plan) : plan_(plan) {
    const auto n = static_cast<std::size_t>(plan.ranks);
    inputs_.resize(n);
    outputs_.resize(n);
    scratch_.assign(n, Bytes(plan.scratch_bytes, 0xEE));
    packets_.resize(n);
    published_.assign(n, false);
    for (std::int32_t rank = 0; rank < plan.ranks; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      Bytes input(plan.input_bytes(rank));
      for (std::uint64_t i = 0; i < input.size(); ++i) input[i] = input_byte(rank, i);
      outputs_[r].assign(plan.output_bytes(rank), 0xDD);
      inputs_[r] = input;
      if (plan.shares_buffer(rank)) alias(rank, input);
    }
  }

  /// True when the step was done, false when it must wait.
  bool run(std::int32_t self, const Step& step) {
    const auto r = static_cast<std::size_t>(self);
    const auto element = plan_.element_bytes;
    switch (step.kind) {
      case StepKind::copy:
      case StepKind::put: {
        auto* to = at(step.destination, step.bytes);
        auto* from = at(step.source, step.bytes);
        if (to != nullptr && from != nullptr) std::memmove(to, from, step.bytes);
        return true;
      }
      case StepKind::reduce: {
        auto* to = at(step.destination, step.bytes);
        std::vector<Place> operands{step.source, step.second};
        operands.insert(operands.end(), step.more.begin(), step.more.end());
        Bytes total;
        for (const Place& operand : operands) {
          const auto* from = at(operand, step.bytes);
          if (from == nullptr || to == nullptr) return true;
          accumulate(total, from, step.bytes);
        }
        std::copy(total.begin(), total.end(), to);
        return true;
      }
      case StepKind::scale: {
        auto* to = at(step.destination, step.bytes);
        for (std::uint64_t i = 0; to != nullptr && i + element <= step.bytes; i += element) {
          scale_element(to + i, element);
        }
        return true;
      }
      case StepKind::put_packet: {
        auto* from = at(step.source, step.bytes);
        if (from != nullptr) packets_[r].assign(from, from + step.bytes);
        published_[r] = true;
        return true;
      }
      case StepKind::copy_packet:
      case StepKind::reduce_packet: {
        const bool everyone = step.peer == kEveryone;
        const std::int32_t first = everyone ? 0 : step.peer;
        const std::int32_t last = everyone ? plan_.ranks - 1 : step.peer;
        for (std::int32_t peer = first; peer <= last; ++peer)
          if (!published_[static_cast<std::size_t>(peer)]) return false;
        auto* to = at(step.destination, step.bytes);
        if (to == nullptr) return true;
        Bytes total;
        if (step.kind == StepKind::reduce_packet && !everyone) accumulate(total, to, step.bytes);
        for (std::int32_t peer = first; peer <= last; ++peer) {
          const Bytes& payload = packets_[static_cast<std::size_t>(peer)];
          if (step.source.offset + step.bytes > payload.size()) {
            in_bounds = false;
            return true;
          }
          accumulate(total, payload.data() + step.source.offset, step.bytes);
        }
        std::copy(total.begin(), total.end(), to);
        return true;
      }
      case StepKind::signal:
        for (std::int32_t peer = 0; peer < plan_.ranks; ++peer) {
          if (peer == self || (step.peer != kEveryone && step.peer != peer)) continue;
          auto& flag = flags_[{self, peer, step.flag}];
          flag = std::max(flag, step.value);
        }
        return true;
      case StepKind::wait:
        return flags_[{step.peer, self, step.flag}] >= step.value;
    }
    return true;
  }

  Bytes output(std::int32_t rank) {
    const std::uint64_t bytes = plan_.output_bytes(rank);
    auto* data = at({Space::output, rank, 0}, bytes);
    return data == nullptr ? Bytes{} : Bytes(data, data + bytes);
  }

  bool in_bounds = true;

 private:
  bool output_holds_input() const {
    return plan_.collective != Collective::reduce_scatter && plan_.collective != Collective::scatter &&
           plan_.collective != Collective::reduce_scatter_v;
  }
  std::uint64_t alias_offset(std::int32_t rank) const {
    return plan_.shared_offset(output_holds_input() ? Space::input : Space::output, rank);
  }
  void alias(std::int32_t rank, const Bytes& input) {
    if (output_holds_input()) {
      std::copy(
          input.begin(), input.end(),
          outputs_[static_cast<std::size_t>(rank)].begin() + static_cast<std::ptrdiff_t>(alias_offset(rank)));
    }
  }

  /// The first contribution is taken as it is, the others are combined with what is there.
  void accumulate(Bytes& total, const std::uint8_t* from, std::uint64_t bytes) {
    if (total.empty()) {
      total.assign(from, from + bytes);
      return;
    }
    const auto element = plan_.element_bytes;
    for (std::uint64_t i = 0; i + element <= bytes; i += element)
      combine(total.data() + i, total.data() + i, from + i, element);
  }

  std::uint8_t* at(const Place& place, std::uint64_t bytes) {
    const auto r = static_cast<std::size_t>(place.rank);
    const bool shares = plan_.shares_buffer(place.rank);
    Bytes* memory = nullptr;
    std::uint64_t shift = 0;
    std::uint64_t limit = 0;
    switch (place.space) {
      case Space::scratch:
        memory = &scratch_[r];
        limit = memory->size();
        break;
      case Space::input:
        limit = plan_.input_bytes(place.rank);
        memory = shares && output_holds_input() ? &outputs_[r] : &inputs_[r];
        shift = shares && output_holds_input() ? alias_offset(place.rank) : 0;
        break;
      case Space::output:
        limit = plan_.output_bytes(place.rank);
        memory = shares && !output_holds_input() ? &inputs_[r] : &outputs_[r];
        shift = shares && !output_holds_input() ? alias_offset(place.rank) : 0;
        break;
    }
    if (place.offset > limit || bytes > limit - place.offset) {
      in_bounds = false;
      return nullptr;
    }
    static std::uint8_t nothing = 0;
    return bytes == 0 ? &nothing : memory->data() + shift + place.offset;
  }

  const Plan& plan_;
  std::vector<Bytes> inputs_, outputs_, scratch_, packets_;
  std::vector<bool> published_;
  std::map<std::tuple<std::int32_t, std::int32_t, std::uint8_t>, std::uint32_t> flags_;
};

}  // namespace

std::uint8_t input_byte(std::int32_t rank, std::uint64_t index) {
  std::uint64_t x = index * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(rank + 1) * 0xbf58476d1ce4e5b9u;
  x ^= x >> 31;
  return static_cast<std::uint8_t>(x * 0x94d049bb133111ebu >> 56);
}

RunResult interpret(const Plan& plan, std::uint64_t seed) {
  struct Agent {
    std::int32_t rank;
    const Program* program;
    std::size_t next = 0;
  };
  Machine machine(plan);
  std::vector<Agent> agents;
  for (std::int32_t rank = 0; rank < plan.ranks; ++rank) {
    for (const Program& program : plan.programs[static_cast<std::size_t>(rank)])
      agents.push_back({rank, &program});
  }
  std::mt19937_64 random(seed);
  RunResult run;
  std::vector<std::size_t> candidates;
  for (std::size_t i = 0; i < agents.size(); ++i) candidates.push_back(i);
  // Even seeds: short bursts in random order. Odd seeds: some agents always go before others, so that the
  // first ones run as far ahead as the plan lets them.
  const bool by_priority = seed % 2 == 1;
  std::shuffle(candidates.begin(), candidates.end(), random);
  while (!candidates.empty() && machine.in_bounds) {
    // Any unfinished agent may be next; when a whole round makes no step, nobody can.
    if (!by_priority) std::shuffle(candidates.begin(), candidates.end(), random);
    bool moved = false;
    for (auto index : candidates) {
      Agent& agent = agents[index];
      auto burst = by_priority ? agent.program->size() : random() % 8 + 1;
      for (; burst > 0 && agent.next < agent.program->size(); --burst) {
        if (!machine.run(agent.rank, (*agent.program)[agent.next])) break;
        ++agent.next;
        moved = true;
      }
      if (by_priority && moved) break;
    }
    std::erase_if(candidates, [&](std::size_t i) { return agents[i].next == agents[i].program->size(); });
    if (!moved && !candidates.empty()) {
      run.ended = false;
      break;
    }
  }
  run.in_bounds = machine.in_bounds;
  for (std::int32_t rank = 0; rank < plan.ranks; ++rank) run.outputs.push_back(machine.output(rank));
  return run;
}

std::vector<std::uint8_t> expected_output(const Plan& plan, std::int32_t rank) {
  const std::uint64_t element = plan.element_bytes;
  Bytes output(plan.output_bytes(rank));
  // The total of a subtree of the binomial tree whose root is the plan's: see ExpressionPool::tree_total.
  const std::function<Bytes(std::uint64_t, std::int32_t)> subtree = [&](std::uint64_t offset,
                                                                        std::int32_t relative) {
    Bytes total(element);
    for (std::uint64_t i = 0; i < element; ++i) {
      total[i] = input_byte((plan.root + relative) % plan.ranks, offset + i);
    }
    for (std::int32_t bit = 1; (relative & bit) == 0 && relative + bit < plan.ranks; bit *= 2) {
      const Bytes below = subtree(offset, relative + bit);
      combine(total.data(), total.data(), below.data(), element);
    }
    return total;
  };
  // As ExpressionPool::group_total.
  const auto reduced_by_groups = [&](std::uint64_t position, std::uint64_t input_offset) {
    std::vector<Bytes> totals;
    for (std::int32_t rank_of_input = 0; rank_of_input < plan.ranks; ++rank_of_input) {
      Bytes input(element);
      for (std::uint64_t i = 0; i < element; ++i) input[i] = input_byte(rank_of_input, input_offset + i);
      const auto group = static_cast<std::size_t>(plan.groups[static_cast<std::size_t>(rank_of_input)]);
      if (group == totals.size()) {
        totals.push_back(input);
      } else {
        combine(totals[group].data(), totals[group].data(), input.data(), element);
      }
    }
    for (std::size_t group = 1; group < totals.size(); ++group)
      combine(totals[0].data(), totals[0].data(), totals[group].data(), element);
    if (plan.average) scale_element(totals[0].data(), element);
    std::copy(totals[0].begin(), totals[0].end(), output.begin() + static_cast<std::ptrdiff_t>(position));
  };
  const auto reduced = [&](std::uint64_t position, std::uint64_t input_offset, std::int32_t first) {
    if (plan.order == ReductionOrder::group_order) return reduced_by_groups(position, input_offset);
    Bytes left(element), right(element);
    for (std::uint64_t i = 0; i < element; ++i) left[i] = input_byte(first, input_offset + i);
    for (std::int32_t step = 1; step < plan.ranks; ++step) {
      const std::int32_t peer = (first + step) % plan.ranks;
      for (std::uint64_t i = 0; i < element; ++i) right[i] = input_byte(peer, input_offset + i);
      combine(left.data(), left.data(), right.data(), element);
    }
    if (plan.average) scale_element(left.data(), element);
    std::copy(left.begin(), left.end(), output.begin() + static_cast<std::ptrdiff_t>(position));
  };
  // As ExpressionPool::recursive_total.
  const std::function<Bytes(std::uint64_t, std::int32_t, std::int32_t)> halves =
      [&](std::uint64_t offset, std::int32_t first, std::int32_t units) {
        const auto input = [&](std::int32_t from) {
          Bytes bytes(element);
          for (std::uint64_t i = 0; i < element; ++i) bytes[i] = input_byte(from, offset + i);
          return bytes;
        };
        const std::int32_t pairs =
            plan.ranks - static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(plan.ranks)));
        if (units == 1 && first >= pairs) return input(first + pairs);
        Bytes left = units > 1 ? halves(offset, first, units / 2) : input(first * 2);
        const Bytes right = units > 1 ? halves(offset, first + units / 2, units / 2) : input(first * 2 + 1);
        combine(left.data(), left.data(), right.data(), element);
        return left;
      };
  const bool ring = plan.order == ReductionOrder::ring_order;
  const auto start_of_block = [&](std::int32_t block) { return ring ? (block + 1) % plan.ranks : 0; };
  const std::uint64_t own_block = static_cast<std::uint64_t>(rank) * plan.bytes;

  switch (plan.collective) {
    case Collective::barrier:
      break;
    case Collective::all_reduce:
      if (plan.order == ReductionOrder::recursive_order) {
        const auto units = static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(plan.ranks)));
        for (std::uint64_t at = 0; at < output.size(); at += element) {
          Bytes total = halves(at, 0, units);
          if (plan.average) scale_element(total.data(), element);
          std::copy(total.begin(), total.end(), output.begin() + static_cast<std::ptrdiff_t>(at));
        }
        break;
      }
      for (std::int32_t block = 0; block < plan.ranks; ++block) {
        const ByteRange range = block_of(plan.bytes, element, plan.ranks, block);
        for (auto at = range.begin; at < range.end; at += element) reduced(at, at, start_of_block(block));
      }
      break;
    case Collective::reduce_scatter:
      for (std::uint64_t at = 0; at < plan.bytes; at += element) {
        reduced(at, own_block + at, start_of_block(rank));
      }
      break;
    case Collective::all_gather:
      for (std::uint64_t i = 0; i < output.size(); ++i) {
        output[i] = input_byte(static_cast<std::int32_t>(i / plan.bytes), i % plan.bytes);
      }
      break;
    case Collective::all_gather_v:
    case Collective::all_to_all_v: {
      std::uint64_t at = 0;
      for (std::int32_t from = 0; from < plan.ranks; ++from) {
        const std::int32_t to = plan.collective == Collective::all_gather_v ? from : rank;
        const std::uint64_t start =
            plan.collective == Collective::all_gather_v ? 0 : plan.input_begin(from, to);
        for (std::uint64_t i = 0; i < plan.block_bytes(from, to); ++i)
          output[at++] = input_byte(from, start + i);
      }
      break;
    }
    case Collective::reduce_scatter_v:
      for (std::uint64_t at = 0; at < output.size(); at += element) {
        reduced(at, plan.input_begin(rank, rank) + at, start_of_block(rank));
      }
      break;
    case Collective::all_to_all:
      for (std::uint64_t i = 0; i < output.size(); ++i) {
        output[i] = input_byte(static_cast<std::int32_t>(i / plan.bytes), own_block + i % plan.bytes);
      }
      break;
    case Collective::broadcast:
      for (std::uint64_t i = 0; i < output.size(); ++i) output[i] = input_byte(plan.root, i);
      break;
    case Collective::send_recv:
      for (std::uint64_t i = 0; i < output.size(); ++i) output[i] = input_byte(0, i);
      break;
    case Collective::reduce:
      for (std::uint64_t at = 0; at < output.size(); at += element) {
        if (plan.order != ReductionOrder::tree_order) {
          reduced(at, at, 0);
          continue;
        }
        Bytes total = subtree(at, 0);
        if (plan.average) scale_element(total.data(), element);
        std::copy(total.begin(), total.end(), output.begin() + static_cast<std::ptrdiff_t>(at));
      }
      break;
    case Collective::gather:
      for (std::uint64_t i = 0; i < output.size(); ++i) {
        output[i] = input_byte(static_cast<std::int32_t>(i / plan.bytes), i % plan.bytes);
      }
      break;
    case Collective::scatter:
      for (std::uint64_t i = 0; i < output.size(); ++i) output[i] = input_byte(plan.root, own_block + i);
      break;
  }
  return output;
}

}  // namespace tugline::core::test

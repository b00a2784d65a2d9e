// SPDX-License-Identifier: Apache-2.0
#include "core/plan/symbolic_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/plan/print.h"

namespace tugline::core {

namespace {

/// Bytes of `space` that `rank` has.
std::uint64_t bytes_of(const Plan& plan, Space space, std::int32_t rank) noexcept {
  if (space == Space::scratch) return plan.scratch_bytes;
  return space == Space::input ? plan.input_bytes(rank) : plan.output_bytes(rank);
}

std::string range_text(std::uint64_t begin, std::uint64_t end) {
  return fmt::format("[{}, {})", begin, end);
}

}  // namespace

SymbolicRun::SymbolicRun(const Plan& plan) : plan_(plan), expressions_(plan.ranks) {
  const auto ranks = static_cast<std::size_t>(plan.ranks);
  for (std::int32_t rank = 0; rank < plan.ranks; ++rank) {
    for (Space space : {Space::input, Space::output, Space::scratch}) {
      std::uint64_t bytes = bytes_of(plan, space, rank);
      if (plan.shares_buffer(rank) && space != Space::scratch) {
        // One buffer, kept as the input; the output's own memory stays empty.
        bytes = space == Space::input ? std::max(plan.input_bytes(rank), plan.output_bytes(rank)) : 0;
      }
      memories_.push_back(std::make_unique<SymbolicMemory>(bytes));
    }
    if (const std::uint64_t bytes = plan.input_bytes(rank); bytes > 0) {
      const Location input = locate({Space::input, rank, 0});
      input.memory->initialise(input.address, bytes, expressions_.input_of(rank));
    }
    const auto& channels = plan.programs[static_cast<std::size_t>(rank)];
    for (std::size_t channel = 0; channel < channels.size(); ++channel) {
      agents_.push_back({rank, static_cast<std::int32_t>(channel), &channels[channel], 0, {}});
    }
  }
  for (Agent& agent : agents_) {
    agent.clock.assign(agents_.size(), 0);
    agent.clock[index_of(agent)] = 1;
  }
  flags_.resize(ranks * ranks * kFlagsPerPair);
  packets_.resize(ranks);
}

std::string SymbolicRun::problem_after_end() {
  for (std::int32_t rank = 0; rank < plan_.ranks; ++rank) {
    Clock end(agents_.size(), 0);
    for (const Agent& agent : agents_)
      if (agent.rank == rank) join(end, agent.clock);
    for (const Space space : {Space::input, Space::output}) {
      const Location whole = locate({space, rank, 0});
      const auto ended = [&](const Access& access, std::string_view does, std::uint64_t begin,
                             std::uint64_t behind) {
        if (access.agent == Access::kNobody || end[access.agent] >= access.clock) return true;
        problem_ = fmt::format(
            "rank {} may end while {} still {} its {} {}; it must wait for a signal given after that", rank,
            name(agents_[access.agent], access.step), does, name_of(space),
            range_text(begin - whole.address, behind - whole.address));
        return false;
      };
      whole.memory->visit(
          whole.address, bytes_of(plan_, space, rank),
          [&](std::uint64_t begin, std::uint64_t behind, SymbolicMemory::Segment& segment) {
            return ended(segment.writer, "writes", begin, behind) &&
                   std::all_of(segment.readers.begin(), segment.readers.end(),
                               [&](const Access& reader) { return ended(reader, "reads", begin, behind); });
          });
      if (!problem_.empty()) return problem_;
    }
  }
  return {};
}

SymbolicRun::Location SymbolicRun::locate(const Place& place) {
  const auto rank = static_cast<std::size_t>(place.rank);
  Space space = place.space;
  std::uint64_t address = place.offset;
  if (plan_.shares_buffer(place.rank) && space != Space::scratch) {
    address += plan_.shared_offset(space, place.rank);
    space = Space::input;
  }
  return {memories_[rank * kSpaceCount + static_cast<std::size_t>(space)].get(), address};
}

SymbolicRun::Flag& SymbolicRun::flag(std::int32_t from, std::int32_t to, std::uint8_t index) {
  const auto pair =
      static_cast<std::size_t>(from) * static_cast<std::size_t>(plan_.ranks) + static_cast<std::size_t>(to);
  return flags_[pair * kFlagsPerPair + index];
}

Access SymbolicRun::access_of(const Agent& agent) const noexcept {
  const std::size_t index = index_of(agent);
  return {static_cast<std::uint32_t>(index), agent.clock[index], static_cast<std::uint32_t>(agent.next)};
}

bool SymbolicRun::is_ordered(const Access& earlier, const Agent& agent) const noexcept {
  return earlier.agent == Access::kNobody || agent.clock[earlier.agent] >= earlier.clock;
}

std::string SymbolicRun::run() {
  bool all_ended = false;
  while (!all_ended) {
    all_ended = true;
    bool moved = false;
    for (Agent& agent : agents_) {
      while (agent.next < agent.program->size() && advance(agent, (*agent.program)[agent.next])) {
        if (!problem_.empty()) return fmt::format("{}: {}", name(agent, agent.next), problem_);
        ++agent.next;
        moved = true;
      }
      if (!problem_.empty()) return fmt::format("{}: {}", name(agent, agent.next), problem_);
      all_ended = all_ended && agent.next == agent.program->size();
    }
    if (!moved && !all_ended) return deadlock_text();
  }
  return {};
}

bool SymbolicRun::advance(Agent& agent, const Step& step) {
  switch (step.kind) {
    case StepKind::copy:
    case StepKind::put:
      move_bytes(agent, step);
      return true;
    case StepKind::reduce:
      reduce(agent, step);
      return true;
    case StepKind::scale:
      scale(agent, step);
      return true;
    case StepKind::put_packet:
      put_packet(agent, step);
      return true;
    case StepKind::copy_packet:
    case StepKind::reduce_packet:
      return take_packet(agent, step);
    case StepKind::signal:
      raise(agent, step);
      return true;
    case StepKind::wait:
      return await(agent, step);
  }
  return true;
}

bool SymbolicRun::read(const Agent& agent, const Place& place, std::uint64_t bytes,
                       std::vector<Piece>& pieces) {
  const Location from = locate(place);
  const auto to_offset = [&](std::uint64_t address) { return address - from.address + place.offset; };
  return from.memory->visit(
      from.address, bytes, [&](std::uint64_t begin, std::uint64_t end, SymbolicMemory::Segment& segment) {
        if (segment.expression == kUndefined) {
          problem_ =
              fmt::format("reads {} {}, which nobody has written; write it and order the read behind it",
                          print(place, agent.rank), range_text(to_offset(begin), to_offset(end)));
          return false;
        }
        if (!is_ordered(segment.writer, agent)) {
          race("reads", place, to_offset(begin), to_offset(end), "wrote", segment.writer,
               "the reader must wait for a signal given after the write");
          return false;
        }
        const Access self = access_of(agent);
        std::erase_if(segment.readers, [&](const Access& reader) { return reader.agent == self.agent; });
        segment.readers.push_back(self);
        append(pieces, {end - begin, segment.expression,
                        static_cast<std::uint64_t>(static_cast<std::int64_t>(begin) + segment.shift)});
        return true;
      });
}

bool SymbolicRun::write(const Agent& agent, const Place& place, const std::vector<Piece>& pieces) {
  const Location to = locate(place);
  const auto to_offset = [&](std::uint64_t address) { return address - to.address + place.offset; };
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes;
  const bool free = to.memory->visit(
      to.address, bytes, [&](std::uint64_t begin, std::uint64_t end, SymbolicMemory::Segment& segment) {
        if (!is_ordered(segment.writer, agent)) {
          race("writes", place, to_offset(begin), to_offset(end), "also writes", segment.writer,
               "order the two writes by a signal and a wait");
          return false;
        }
        for (const Access& reader : segment.readers) {
          if (is_ordered(reader, agent)) continue;
          race("writes", place, to_offset(begin), to_offset(end), "may still read", reader,
               "the writer must wait for a signal given after the read");
          return false;
        }
        return true;
      });
  if (free) to.memory->write(to.address, pieces, access_of(agent));
  return free;
}

bool SymbolicRun::overlaps(const Place& a, const Place& b, std::uint64_t bytes) {
  const Location first = locate(a);
  const Location second = locate(b);
  return first.memory == second.memory && first.address < second.address + bytes &&
         second.address < first.address + bytes;
}

void SymbolicRun::move_bytes(Agent& agent, const Step& step) {
  if (overlaps(step.destination, step.source, step.bytes)) {
    problem_ = "source and destination overlap; leave the step out, or copy through scratch";
    return;
  }
  std::vector<Piece> pieces;
  if (read(agent, step.source, step.bytes, pieces)) write(agent, step.destination, pieces);
}

bool SymbolicRun::is_whole_elements(const std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces) {
    if (piece.coordinate % plan_.element_bytes == 0 && piece.bytes % plan_.element_bytes == 0) continue;
    problem_ = fmt::format(
        "takes parts of different elements for one: {} bytes of {} from byte {} on, elements are {} bytes",
        piece.bytes, expressions_.print(piece.expression), piece.coordinate, plan_.element_bytes);
    return false;
  }
  return true;
}

bool SymbolicRun::combine(const Step& step, const std::vector<Piece>& left, const std::vector<Piece>& right,
                          std::vector<Piece>& result) {
  if (!is_whole_elements(left) || !is_whole_elements(right)) return false;
  std::size_t l = 0;
  std::size_t r = 0;
  std::uint64_t left_used = 0;
  std::uint64_t right_used = 0;
  for (std::uint64_t done = 0; done < step.bytes;) {
    const std::uint64_t bytes = std::min(left[l].bytes - left_used, right[r].bytes - right_used);
    const std::uint64_t left_at = left[l].coordinate + left_used;
    const std::uint64_t right_at = right[r].coordinate + right_used;
    const Expression sum =
        expressions_.reduce(left[l].expression, right[r].expression,
                            static_cast<std::int64_t>(right_at) - static_cast<std::int64_t>(left_at));
    append(result, {bytes, sum, left_at});
    done += bytes;
    if ((left_used += bytes) == left[l].bytes) ++l, left_used = 0;
    if ((right_used += bytes) == right[r].bytes) ++r, right_used = 0;
  }
  return true;
}

void SymbolicRun::reduce(Agent& agent, const Step& step) {
  std::vector<Place> operands{step.source, step.second};
  operands.insert(operands.end(), step.more.begin(), step.more.end());
  for (const Place& operand : operands) {
    const Location from = locate(operand);
    const Location to = locate(step.destination);
    if (from.address != to.address && overlaps(step.destination, operand, step.bytes)) {
      problem_ = "the destination overlaps an operand partly; use the same range or another one";
      return;
    }
  }
  std::vector<Piece> total;
  if (!read(agent, operands[0], step.bytes, total)) return;
  for (std::size_t i = 1; i < operands.size(); ++i) {
    std::vector<Piece> next;
    std::vector<Piece> combined;
    if (!read(agent, operands[i], step.bytes, next) || !combine(step, total, next, combined)) return;
    total = std::move(combined);
  }
  write(agent, step.destination, total);
}

void SymbolicRun::scale(Agent& agent, const Step& step) {
  std::vector<Piece> pieces;
  if (!read(agent, step.destination, step.bytes, pieces) || !is_whole_elements(pieces)) return;
  for (Piece& piece : pieces) piece.expression = expressions_.scale(piece.expression);
  write(agent, step.destination, pieces);
}

void SymbolicRun::put_packet(Agent& agent, const Step& step) {
  Packet& packet = packets_[static_cast<std::size_t>(agent.rank)];
  if (packet.clock != nullptr) {
    problem_ = "publishes a second packet; a rank has one packet per operation";
    return;
  }
  if (!read(agent, step.source, step.bytes, packet.payload)) return;
  packet.bytes = step.bytes;
  packet.clock = release(agent);
}

bool SymbolicRun::payload_of(const Packet& packet, std::int32_t peer, const Step& step,
                             std::vector<Piece>& payload) {
  if (step.source.offset > packet.bytes || step.bytes > packet.bytes - step.source.offset) {
    problem_ =
        fmt::format("takes payload {}, the packet of rank {} has {} bytes",
                    range_text(step.source.offset, step.source.offset + step.bytes), peer, packet.bytes);
    return false;
  }
  std::uint64_t at = 0;
  for (const Piece& piece : packet.payload) {
    const std::uint64_t begin = std::max(at, step.source.offset);
    const std::uint64_t end = std::min(at + piece.bytes, step.source.offset + step.bytes);
    if (begin < end) append(payload, {end - begin, piece.expression, piece.coordinate + (begin - at)});
    at += piece.bytes;
  }
  return true;
}

bool SymbolicRun::take_packet(Agent& agent, const Step& step) {
  const bool everyone = step.peer == kEveryone;
  const std::int32_t first = everyone ? 0 : step.peer;
  const std::int32_t last = everyone ? plan_.ranks - 1 : step.peer;
  for (std::int32_t peer = first; peer <= last; ++peer)
    if (packets_[static_cast<std::size_t>(peer)].clock == nullptr) return false;
  std::vector<Piece> total;
  if (step.kind == StepKind::reduce_packet && !everyone && !read(agent, step.destination, step.bytes, total))
    return true;
  for (std::int32_t peer = first; peer <= last; ++peer) {
    const Packet& packet = packets_[static_cast<std::size_t>(peer)];
    join(agent.clock, *packet.clock);
    std::vector<Piece> payload;
    if (!payload_of(packet, peer, step, payload)) return true;
    if (step.kind == StepKind::copy_packet || (everyone && peer == first)) {
      total = std::move(payload);
      continue;
    }
    std::vector<Piece> combined;
    if (!combine(step, total, payload, combined)) return true;
    total = std::move(combined);
  }
  write(agent, step.destination, total);
  return true;
}

void SymbolicRun::raise(Agent& agent, const Step& step) {
  const auto self = static_cast<std::uint32_t>(index_of(agent));
  const std::shared_ptr<const Clock> clock = release(agent);
  for (std::int32_t peer = 0; peer < plan_.ranks; ++peer) {
    if (peer == agent.rank || (step.peer != kEveryone && step.peer != peer)) continue;
    Flag& raised = flag(agent.rank, peer, step.flag);
    const std::uint32_t last = raised.signals.empty() ? 0 : raised.signals.back().value;
    if (step.value <= last) {
      problem_ = fmt::format("raises flag {} at rank {} to {}, where it has {} already; a flag only grows",
                             step.flag, peer, step.value, last);
      return;
    }
    if (raised.agent != Access::kNobody && raised.agent != self) {
      problem_ = fmt::format(
          "raises flag {} at rank {}, as channel {} of this rank does; give each channel its own flag",
          step.flag, peer, agents_[raised.agent].channel);
      return;
    }
    raised.agent = self;
    raised.signals.push_back({step.value, clock});
  }
}

bool SymbolicRun::await(Agent& agent, const Step& step) {
  const Flag& awaited = flag(step.peer, agent.rank, step.flag);
  const auto reached =
      std::lower_bound(awaited.signals.begin(), awaited.signals.end(), step.value,
                       [](const Signal& signal, std::uint32_t value) { return signal.value < value; });
  if (reached == awaited.signals.end()) return false;
  join(agent.clock, *reached->clock);
  return true;
}

void SymbolicRun::join(Clock& clock, const Clock& other) {
  for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

std::shared_ptr<const SymbolicRun::Clock> SymbolicRun::release(Agent& agent) {
  auto clock = std::make_shared<const Clock>(agent.clock);
  ++agent.clock[index_of(agent)];
  return clock;
}

std::vector<Piece> SymbolicRun::output_of(std::int32_t rank) {
  std::vector<Piece> pieces;
  const Location output = locate({Space::output, rank, 0});
  output.memory->visit(output.address, bytes_of(plan_, Space::output, rank),
                       [&](std::uint64_t begin, std::uint64_t end, const SymbolicMemory::Segment& segment) {
                         const auto coordinate =
                             static_cast<std::uint64_t>(static_cast<std::int64_t>(begin) + segment.shift);
                         append(pieces, {end - begin, segment.expression, coordinate});
                         return true;
                       });
  return pieces;
}

bool SymbolicRun::ended_after_start(std::int32_t rank, std::int32_t peer) const {
  for (const Agent& agent : agents_) {
    if (agent.rank != rank) continue;
    for (const Agent& other : agents_) {
      if (other.rank == peer && agent.clock[index_of(other)] > 0) return true;
    }
  }
  return false;
}

std::string SymbolicRun::name(const Agent& agent, std::size_t step) const {
  return fmt::format("rank {} channel {} step {} ({})", agent.rank, agent.channel, step,
                     print((*agent.program)[step], agent.rank));
}

void SymbolicRun::race(std::string_view doing, const Place& place, std::uint64_t begin, std::uint64_t end,
                       std::string_view other_did, const Access& other, std::string_view remedy) {
  problem_ = fmt::format("{} {} of rank {} {} while {} {} it: nothing orders the two; {}", doing,
                         name_of(place.space), place.rank, range_text(begin, end),
                         name(agents_[other.agent], other.step), other_did, remedy);
}

std::string SymbolicRun::deadlock_text() const {
  constexpr int kNamed = 4;
  std::string text = "deadlock:";
  int blocked = 0;
  for (const Agent& agent : agents_) {
    if (agent.next == agent.program->size() || ++blocked > kNamed) continue;
    const Step& step = (*agent.program)[agent.next];
    text += fmt::format("{} {} waits", blocked == 1 ? "" : ";", name(agent, agent.next));
    if (step.kind != StepKind::wait) {
      text += step.peer == kEveryone ? " for a packet that some rank does not publish"
                                     : fmt::format(" for a packet that rank {} does not publish", step.peer);
      continue;
    }
    const auto pair = static_cast<std::size_t>(step.peer) * static_cast<std::size_t>(plan_.ranks) +
                      static_cast<std::size_t>(agent.rank);
    const auto& signals = flags_[pair * kFlagsPerPair + step.flag].signals;
    text += fmt::format(" for {}, it reaches {}", step.value, signals.empty() ? 0 : signals.back().value);
  }
  if (blocked > kNamed) text += fmt::format("; and {} more", blocked - kNamed);
  return text;
}

}  // namespace tugline::core

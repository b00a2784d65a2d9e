// SPDX-License-Identifier: Apache-2.0
// Recursive doubling (Thakur, Rabenseifner, Gropp 2005, section 4.2): in each of log2(ranks) rounds a rank
// exchanges what it has with a partner twice as far away as the last, and both combine the two alike. So
// every rank has the result after as few trips as a tree has levels, without a way back; but every round
// moves the whole message.
//
// With p the largest power of two that is not above the ranks, the first 2 * (ranks - p) ranks work in pairs,
// of which the even rank takes part for both. Everything fits scratch at once: for short messages only, as
// longer ones are served by plans that move less.
#include <bit>

#include "core/plan/builder_parts.h"

namespace tugline::core {

namespace {

constexpr std::uint8_t kWritten = 0;
constexpr std::uint8_t kResult = 1;

std::int32_t power_below(std::int32_t ranks) noexcept {
  return static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(ranks)));
}

void write_recursive(ProgramWriter& program, const PlanRequest& request, const Pipeline& pipeline) {
  const std::int32_t power = power_below(request.ranks);
  const std::int32_t paired = 2 * (request.ranks - power);
  const std::int32_t self = program.rank();
  const std::uint64_t bytes = request.bytes;
  // What a rank has after so many rounds.
  const auto value = [&](std::int32_t rank, std::uint64_t rounds) {
    return ProgramWriter::scratch_of(rank, pipeline.slot(0, rounds));
  };
  const std::uint64_t rounds = pipeline.pieces - 1;

  if (self < paired && self % 2 == 1) {
    program.copy(value(self, 0), program.input(0), bytes);
    program.signal(self - 1, kWritten, 1);
    program.wait(self - 1, kResult, 1);
    program.copy(program.output(0), value(self - 1, rounds), bytes);
    return;
  }
  const bool speaks_for_two = self < paired;
  if (speaks_for_two) {
    program.wait(self + 1, kWritten, 1);
    program.reduce(value(self, 0), program.input(0), value(self + 1, 0), bytes);
  } else {
    program.copy(value(self, 0), program.input(0), bytes);
  }
  const std::int32_t index = speaks_for_two ? self / 2 : self - paired / 2;
  Place total = value(self, 0);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::int32_t other = index ^ (1 << round);
    const std::int32_t partner = other < paired / 2 ? other * 2 : other + paired / 2;
    program.signal(partner, kWritten, 1);
    program.wait(partner, kWritten, 1);
    total = round + 1 == rounds && !speaks_for_two ? program.output(0) : value(self, round + 1);
    const Place own = value(self, round);
    const Place received = value(partner, round);
    program.reduce(total, index < other ? own : received, index < other ? received : own, bytes);
  }
  if (request.average) program.scale(total, bytes);
  if (!speaks_for_two) return;
  program.signal(self + 1, kResult, 1);
  program.copy(program.output(0), total, bytes);
}

}  // namespace

std::optional<Pipeline> recursive_pipeline(const PlanRequest& request) noexcept {
  if (!needs_exchange(request)) return Pipeline{.slots = 0};
  const auto power = static_cast<std::uint64_t>(power_below(request.ranks));
  const auto pieces = static_cast<std::uint64_t>(std::bit_width(power));  // one more than rounds
  auto pipeline = lay_out(request, request.bytes, pieces, 1, request.bytes);
  if (pipeline && pipeline->chunks() > 1) pipeline.reset();
  return pipeline;
}

Plan build_recursive(const PlanRequest& request) {
  validate(request);
  if (!can_build("recursive", request)) throw_cannot_build("recursive", request);
  const Pipeline pipeline = *recursive_pipeline(request);
  Plan plan = empty_plan("recursive", request);
  plan.scratch_bytes = pipeline.scratch_bytes();
  write_programs(plan, request, [&](ProgramWriter& program) { write_recursive(program, request, pipeline); });
  return plan;
}

}  // namespace tugline::core

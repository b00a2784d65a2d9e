// SPDX-License-Identifier: Apache-2.0
// One packet from every rank to every rank: a trip of one cache line, without flags and without an exit
// barrier.
#include "core/plan/builder_parts.h"

namespace tugline::core {

namespace {

void write_packet_program(ProgramWriter& program, const PlanRequest& request) {
  const std::int32_t self = program.rank();
  const std::uint64_t bytes = request.bytes;
  const Blocks blocks(request, self);
  const auto block = [&](std::int32_t index) { return blocks.sent(index).begin; };
  const auto peers = [&](auto visit) {
    for (std::int32_t step = 1; step < request.ranks; ++step) visit((self + step) % request.ranks);
  };
  const auto reduce_all = [&](std::uint64_t payload_offset) {
    const std::uint64_t length = blocks.sent(self).bytes;
    program.reduce_packets(program.output(0), payload_offset, length);
    if (request.average) program.scale(program.output(0), length);
  };

  switch (request.collective) {
    case Collective::barrier:
      program.put_packet(program.input(0), 0);
      peers([&](std::int32_t peer) { program.copy_packet(peer, program.output(0), 0, 0); });
      break;
    case Collective::all_reduce:
      program.put_packet(program.input(0), bytes);
      reduce_all(0);
      break;
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
      program.put_packet(program.input(0), packet_payload_bytes(request));
      reduce_all(block(self));
      break;
    case Collective::all_gather:
    case Collective::all_gather_v: {
      const std::uint64_t own = blocks.sent(self).bytes;
      program.put_packet(program.input(0), own);
      if (!request.in_place) program.copy(program.output(block(self)), program.input(0), own);
      peers([&](std::int32_t peer) {
        program.copy_packet(peer, program.output(block(peer)), 0, blocks.sent(peer).bytes);
      });
      break;
    }
    case Collective::all_to_all:
      program.put_packet(program.input(0), packet_payload_bytes(request));
      if (!request.in_place) program.copy(program.output(block(self)), program.input(block(self)), bytes);
      peers([&](std::int32_t peer) {
        program.copy_packet(peer, program.output(block(peer)), block(self), bytes);
      });
      break;
    case Collective::broadcast:
      if (self != request.root) {
        program.copy_packet(request.root, program.output(0), 0, bytes);
        break;
      }
      program.put_packet(program.input(0), bytes);
      if (!request.in_place) program.copy(program.output(0), program.input(0), bytes);
      break;
    case Collective::reduce:
      program.put_packet(program.input(0), bytes);
      if (self == request.root) reduce_all(0);
      break;
    case Collective::gather:
      if (self != request.root) {
        program.put_packet(program.input(0), bytes);
        break;
      }
      if (!request.in_place) program.copy(program.output(block(self)), program.input(0), bytes);
      peers([&](std::int32_t peer) { program.copy_packet(peer, program.output(block(peer)), 0, bytes); });
      break;
    case Collective::scatter:
      if (self != request.root) {
        program.copy_packet(request.root, program.output(0), block(self), bytes);
        break;
      }
      program.put_packet(program.input(0), packet_payload_bytes(request));
      if (!request.in_place) program.copy(program.output(0), program.input(block(self)), bytes);
      break;
    case Collective::all_to_all_v:  // a rank does not know how long the others' packets are
    case Collective::send_recv:
      break;
  }
}

}  // namespace

std::uint64_t packet_payload_bytes(const PlanRequest& request) noexcept {
  const bool whole_input = request.collective == Collective::reduce_scatter ||
                           request.collective == Collective::all_to_all ||
                           request.collective == Collective::scatter;
  if (request.collective == Collective::all_gather_v) return longest_block(request);
  return whole_input ? request.bytes * static_cast<std::uint64_t>(request.ranks) : request.bytes;
}

Plan build_one_shot_packet(const PlanRequest& request) {
  validate(request);
  if (!can_build("one_shot_packet", request)) throw_cannot_build("one_shot_packet", request);
  Plan plan = empty_plan("one_shot_packet", request);
  write_programs(plan, request, [&](ProgramWriter& program) { write_packet_program(program, request); });
  return plan;
}

}  // namespace tugline::core

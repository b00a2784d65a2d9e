// SPDX-License-Identifier: Apache-2.0
// What all builders share.
#pragma once

#include "core/plan/builders.h"
#include "core/plan/pipeline.h"
#include "core/plan/program_writer.h"

namespace tugline::core {

bool is_valid(const PlanRequest& request) noexcept;

/// True when there is something to do: more than one rank, and bytes, a barrier, or others that may have
/// bytes.
inline bool needs_exchange(const PlanRequest& request) noexcept {
  // One rank's part of a direct plan: the others may have something to exchange, and wait for its word.
  const bool part = request.direct && request.only_rank >= 0;
  return request.ranks > 1 && (request.bytes > 0 || request.collective == Collective::barrier || part);
}

/// Where the blocks of one rank's buffers lie: equal ones of `bytes`, or what request.blocks says.
class Blocks {
 public:
  struct Block {
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;
  };
  Blocks(const PlanRequest& request, std::int32_t self);
  /// Block `peer` of the input; of the output: all but all_to_all_v have one list only.
  const Block& sent(std::int32_t peer) const noexcept { return sent_[static_cast<std::size_t>(peer)]; }
  const Block& received(std::int32_t peer) const noexcept {
    return (received_.empty() ? sent_ : received_)[static_cast<std::size_t>(peer)];
  }

 private:
  std::vector<Block> sent_;
  std::vector<Block> received_;
};
/// The longest block of a request.
std::uint64_t longest_block(const PlanRequest& request) noexcept;

/// The plan's frame: everything but the programs, one empty channel per rank.
Plan empty_plan(std::string_view name, const PlanRequest& request);

/// One rank alone: its input becomes its output.
void write_local(ProgramWriter& program, const PlanRequest& request);

/// Calls write(ProgramWriter&) for every rank that the request asks for; a rank alone gets write_local, and a
/// request without bytes gets empty programs.
template <class Write>
void write_programs(Plan& plan, const PlanRequest& request, Write write) {
  for (std::int32_t rank = 0; rank < request.ranks; ++rank) {
    if (request.only_rank >= 0 && request.only_rank != rank) continue;
    ProgramWriter program(plan.programs[static_cast<std::size_t>(rank)][0], rank);
    if (needs_exchange(request)) {
      write(program);
    } else if (request.bytes > 0) {
      write_local(program, request);
    }
  }
}

/// Throws the Error{unsupported} of a builder that cannot serve a valid request.
[[noreturn]] void throw_cannot_build(std::string_view builder, const PlanRequest& request);

/// The pipelines that the builders of those names use; none when scratch is too small.
std::optional<Pipeline> one_shot_pipeline(const PlanRequest& request) noexcept;
/// Of all_to_all_v: what all pairs have in common; `length` is to be set to a pair's bytes.
std::optional<Pipeline> pair_pipeline(const PlanRequest& request) noexcept;
std::optional<Pipeline> two_shot_pipeline(const PlanRequest& request) noexcept;
std::optional<Pipeline> ring_pipeline(const PlanRequest& request) noexcept;
std::optional<Pipeline> recursive_pipeline(const PlanRequest& request) noexcept;
std::optional<Pipeline> tree_pipeline(const PlanRequest& request) noexcept;
/// Of a request whose groups nest.
std::optional<Pipeline> hierarchical_pipeline(const PlanRequest& request);

bool can_build_direct(const PlanRequest& request) noexcept;

/// Payload bytes of a request's packet.
std::uint64_t packet_payload_bytes(const PlanRequest& request) noexcept;

}  // namespace tugline::core

// SPDX-License-Identifier: Apache-2.0
// Builders: pure functions from a request to a Plan. No clock, no device, no state.
#pragma once

#include "core/plan/plan.h"

namespace tugline::core {

/// What a plan is asked for.
struct PlanRequest {
  Collective collective = Collective::all_reduce;
  std::int32_t ranks = 1;
  std::int32_t root = 0;
  std::uint64_t element_bytes = 4;
  std::uint64_t bytes = 0;  ///< as Plan::bytes counts
  /// Each rank's own business: the plans of one request in both forms lay out scratch and raise flags alike,
  /// so that ranks may mix them.
  bool in_place = false;
  bool average = false;             ///< the operator is avg: every result gets one scale step
  bool direct = false;              ///< ranks can reach each other's buffers
  bool pre_multiplied = false;      ///< a rank multiplies its input when it reads it: others must not read it
  std::uint64_t scratch_bytes = 0;  ///< scratch available per rank; the plan uses at most this much
  std::uint64_t chunk_bytes = 0;    ///< preferred pipeline chunk, 0 = builder's choice
  std::int32_t only_rank = -1;      ///< build this rank's program only, the others stay empty; -1: all
  /// As Plan::blocks; of all_to_all_v with only_rank that rank's row and then its column, which is all that a
  /// rank knows. `bytes` is their sum.
  std::vector<std::uint64_t> blocks = {};
  /// Of a direct all_to_all_v of one rank, [rank]: where in that rank's input its block for this one begins,
  /// which follows from sizes that this rank does not know.
  std::vector<std::uint64_t> peer_begins = {};
  /// [rank]: the group of ranks near to each other (a NUMA node, a last-level cache) that it is of, numbered
  /// in the order of their lowest ranks; empty where nothing is known of groups.
  std::vector<std::int32_t> groups = {};
};

/// One packet to everyone, every rank combines all packets in rank order. At most packet_bytes().
/// barrier, all_reduce, reduce, all_gather, gather, broadcast; reduce_scatter, all_to_all and scatter with
/// the whole input in one packet.
Plan build_one_shot_packet(const PlanRequest& request);
/// Everyone publishes its whole input in its own scratch, chunk by chunk; everyone reads all it needs. Of
/// all_to_all_v each pair is a pipeline of its own, so that no rank has to know other pairs' sizes.
Plan build_one_shot(const PlanRequest& request);
/// Reduce-scatter by blocks, then all-gather (reduce: gather) of the results. all_reduce, reduce.
Plan build_two_shot(const PlanRequest& request);
/// Neighbours pass chunks around a ring. all_reduce, all_gather(_v), reduce_scatter(_v), broadcast.
Plan build_ring(const PlanRequest& request);
/// Recursive doubling, for messages that fit scratch as often as there are rounds. all_reduce only.
Plan build_recursive(const PlanRequest& request);
/// Binomial tree from or to the root, chunk by chunk. reduce, broadcast.
Plan build_tree(const PlanRequest& request);
/// Within groups and between them, for requests that have several, one of several ranks at least: what
/// crosses from group to group does so once. all_reduce, reduce, broadcast, all_gather(_v),
/// reduce_scatter(_v).
Plan build_hierarchical(const PlanRequest& request);
/// From buffer to buffer, for requests that say that this can be: all collectives but barrier, all_to_all(_v)
/// not in place.
Plan build_direct(const PlanRequest& request);
/// Chunks through the sender's scratch with credits. send_recv only.
Plan build_point_to_point(const PlanRequest& request);

/// Throws Error{invalid_argument} that names the field and the value when the request makes no sense.
void validate(const PlanRequest& request);
/// True when the builder of that name can serve the request: collective, size, and scratch enough for it.
bool can_build(std::string_view builder, const PlanRequest& request) noexcept;
/// The order class of that builder's plans, where they reduce; none for an unknown name.
ReductionOrder order_of(std::string_view builder) noexcept;
/// Builds by name; throws Error{invalid_argument} for a request that makes no sense (naming field and value),
/// Error{unsupported} when can_build is false otherwise, Error{not_found} for an unknown name.
Plan build(std::string_view builder, const PlanRequest& request);
/// Names of all builders in order of preference (ties in the cost model go to the first).
const std::vector<std::string_view>& builder_names() noexcept;

}  // namespace tugline::core

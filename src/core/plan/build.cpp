// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>

#include "core/plan/builder_parts.h"
#include "core/plan/groups.h"
#include "tugline/error.h"

namespace tugline::core {

namespace {

/// Larger messages are cut by the caller; keeps every sum and product of sizes far from overflow.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 48;
constexpr std::uint64_t kMostElementBytes = 4096;

/// What is wrong with the sizes of a request with blocks; empty when nothing is.
std::string problem_of_blocks(const PlanRequest& request) {
  const auto n = static_cast<std::size_t>(request.ranks);
  const bool pairs = request.collective == Collective::all_to_all_v;
  const std::size_t count = request.blocks.size();
  if (!has_blocks(request.collective)) {
    return count == 0
               ? std::string()
               : fmt::format("blocks has {} sizes, but {} has none", count, name_of(request.collective));
  }
  const bool own_only = pairs && request.only_rank >= 0;
  const std::size_t wanted = own_only ? 2 * n : pairs ? n * n : n;
  if (count != wanted) return fmt::format("blocks has {} sizes, must have {}", count, wanted);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bytes = request.blocks[i];
    if (bytes % request.element_bytes != 0 || bytes > kMostBytes || (sum += bytes) > kMostBytes) {
      return fmt::format("blocks[{}] = {}, must be a multiple of element_bytes = {}, all together at most {}",
                         i, bytes, request.element_bytes, kMostBytes);
    }
  }
  if (sum != request.bytes) {
    return fmt::format("bytes = {}, must be the sum of all blocks, {}", request.bytes, sum);
  }
  if (!pairs || !request.in_place) return {};
  for (std::size_t from = 0; from < (own_only ? 1 : n); ++from) {
    for (std::size_t to = 0; to < n; ++to) {
      const std::uint64_t there = request.blocks[from * n + to];
      const std::uint64_t back = request.blocks[own_only ? n + to : to * n + from];
      if (there == back) continue;
      return fmt::format("blocks: {} bytes there and {} back, but in place both are of one size", there,
                         back);
    }
  }
  return {};
}

/// The first field that makes no sense, as text; empty when all do.
std::string first_problem(const PlanRequest& request) {
  const auto rank_in_range = [&](std::int32_t rank) { return rank >= 0 && rank < request.ranks; };
  if (static_cast<int>(request.collective) >= kCollectiveCount) {
    return fmt::format("collective = {}", static_cast<int>(request.collective));
  }
  if (request.ranks < 1 || request.ranks > kMaxPlanRanks) {
    return fmt::format("ranks = {}, must be 1 to {}", request.ranks, kMaxPlanRanks);
  }
  if (request.collective == Collective::send_recv && request.ranks != 2) {
    return fmt::format("ranks = {}, a send_recv has 2", request.ranks);
  }
  if (!rank_in_range(request.root)) {
    return fmt::format("root = {}, must be 0 to {}", request.root, request.ranks - 1);
  }
  if (request.only_rank != -1 && !rank_in_range(request.only_rank)) {
    return fmt::format("only_rank = {}, must be -1 (all) to {}", request.only_rank, request.ranks - 1);
  }
  if (request.element_bytes < 1 || request.element_bytes > kMostElementBytes) {
    return fmt::format("element_bytes = {}, must be 1 to {}", request.element_bytes, kMostElementBytes);
  }
  if (request.bytes % request.element_bytes != 0 || request.bytes > kMostBytes) {
    return fmt::format("bytes = {}, must be a multiple of element_bytes = {} and at most {}", request.bytes,
                       request.element_bytes, kMostBytes);
  }
  if (request.collective == Collective::barrier && request.bytes != 0) {
    return fmt::format("bytes = {}, a barrier has none", request.bytes);
  }
  if (request.average && !reduces(request.collective)) {
    return fmt::format("average = true, but {} reduces nothing", name_of(request.collective));
  }
  if (!request.groups.empty())
    if (auto problem = problem_of_groups(request.groups, request.ranks); !problem.empty()) return problem;
  return problem_of_blocks(request);
}

ErrorContext context_of(const PlanRequest& request) {
  ErrorContext context;
  context.operation = name_of(request.collective);
  return context;
}

struct Builder {
  std::string_view name;
  Plan (*build)(const PlanRequest&);
  bool (*can_build)(const PlanRequest&);
  ReductionOrder order = ReductionOrder::rank_order;  ///< if the collective reduces
};

bool is_ring(const PlanRequest& request) noexcept {
  return request.collective == Collective::all_reduce || request.collective == Collective::reduce_scatter ||
         request.collective == Collective::all_gather || request.collective == Collective::broadcast ||
         request.collective == Collective::all_gather_v || request.collective == Collective::reduce_scatter_v;
}
bool is_two_shot(const PlanRequest& request) noexcept {
  return request.collective == Collective::all_reduce || request.collective == Collective::reduce;
}
bool is_tree(const PlanRequest& request) noexcept {
  return request.collective == Collective::reduce || request.collective == Collective::broadcast;
}
bool is_hierarchical(const PlanRequest& request) {
  return (is_ring(request) || request.collective == Collective::reduce) && Groups(request.groups).nest();
}

const std::array kBuilders = {
    Builder{"one_shot_packet", build_one_shot_packet,
            [](const PlanRequest& r) {
              return r.collective != Collective::send_recv && r.collective != Collective::all_to_all_v &&
                     packet_payload_bytes(r) <= packet_bytes(r.ranks);
            }},
    Builder{"direct", build_direct, can_build_direct},
    Builder{"one_shot", build_one_shot,
            [](const PlanRequest& r) {
              return r.collective != Collective::send_recv && one_shot_pipeline(r).has_value();
            }},
    Builder{"two_shot", build_two_shot,
            [](const PlanRequest& r) { return is_two_shot(r) && two_shot_pipeline(r).has_value(); }},
    Builder{"ring", build_ring,
            [](const PlanRequest& r) { return is_ring(r) && ring_pipeline(r).has_value(); },
            ReductionOrder::ring_order},
    Builder{"recursive", build_recursive,
            [](const PlanRequest& r) {
              return r.collective == Collective::all_reduce && recursive_pipeline(r).has_value();
            },
            ReductionOrder::recursive_order},
    Builder{"tree", build_tree,
            [](const PlanRequest& r) { return is_tree(r) && tree_pipeline(r).has_value(); },
            ReductionOrder::tree_order},
    Builder{"hierarchical", build_hierarchical,
            [](const PlanRequest& r) { return is_hierarchical(r) && hierarchical_pipeline(r).has_value(); },
            ReductionOrder::group_order},
    Builder{"point_to_point", build_point_to_point,
            [](const PlanRequest& r) {
              return r.collective == Collective::send_recv && one_way_pipeline(r, r.bytes).has_value();
            }},
};

const Builder* find_builder(std::string_view name) noexcept {
  for (const Builder& builder : kBuilders) {
    if (builder.name == name) return &builder;
  }
  return nullptr;
}

}  // namespace

bool is_valid(const PlanRequest& request) noexcept {
  return first_problem(request).empty();
}

void validate(const PlanRequest& request) {
  if (auto problem = first_problem(request); !problem.empty()) {
    throw Error(ErrorCode::invalid_argument, fmt::format("plan request: {}", problem),
                "pass a value in that range", context_of(request));
  }
}

void throw_cannot_build(std::string_view builder, const PlanRequest& request) {
  throw Error(ErrorCode::unsupported,
              fmt::format("no {} plan for {} of {} bytes over {} ranks with {} bytes of scratch", builder,
                          name_of(request.collective), request.bytes, request.ranks, request.scratch_bytes),
              "choose another plan, or give the communicator more scratch", context_of(request));
}

Plan empty_plan(std::string_view name, const PlanRequest& request) {
  Plan plan;
  plan.name = name;
  plan.collective = request.collective;
  plan.ranks = request.ranks;
  plan.root = request.root;
  plan.element_bytes = request.element_bytes;
  plan.bytes = request.bytes;
  plan.in_place = request.in_place;
  plan.average = request.average;
  plan.blocks = request.blocks;
  plan.order = reduces(request.collective) ? order_of(name) : ReductionOrder::none;
  plan.programs.assign(static_cast<std::size_t>(request.ranks), std::vector<Program>(1));
  return plan;
}

void write_local(ProgramWriter& program, const PlanRequest& request) {
  // In place, the one rank's output is its input.
  const std::uint64_t bytes = has_blocks(request.collective) ? request.blocks[0] : request.bytes;
  if (!request.in_place) program.copy(program.output(0), program.input(0), bytes);
  if (request.average) program.scale(program.output(0), bytes);
}

bool can_build(std::string_view builder, const PlanRequest& request) noexcept {
  const Builder* found = find_builder(builder);
  return found != nullptr && is_valid(request) && found->can_build(request);
}

ReductionOrder order_of(std::string_view builder) noexcept {
  const Builder* found = find_builder(builder);
  return found == nullptr ? ReductionOrder::none : found->order;
}

Plan build(std::string_view builder, const PlanRequest& request) {
  const Builder* found = find_builder(builder);
  if (found == nullptr) {
    std::string names;
    for (auto name : builder_names()) names += (names.empty() ? "" : ", ") + std::string(name);
    throw Error(ErrorCode::not_found, fmt::format("no plan builder is called \"{}\"", builder),
                fmt::format("use one of: {}", names));
  }
  return found->build(request);
}

const std::vector<std::string_view>& builder_names() noexcept {
  static const std::vector<std::string_view> kNames = [] {
    std::vector<std::string_view> all;
    for (const Builder& builder : kBuilders) all.push_back(builder.name);
    return all;
  }();
  return kNames;
}

}  // namespace tugline::core

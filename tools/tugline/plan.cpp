// SPDX-License-Identifier: Apache-2.0
// `tugline plan`: the candidates for a collective, their predicted cost, the choice, and its steps.
#include <fmt/format.h>

#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/count.h"
#include "base/json.h"
#include "base/settings.h"
#include "bench/sweep.h"
#include "comm/layout.h"
#include "comm/machine.h"
#include "comm/selection.h"
#include "commands.h"
#include "core/plan/builders.h"
#include "core/plan/cost.h"
#include "core/plan/groups.h"
#include "core/plan/print.h"
#include "launch/machine.h"
#include "plan_file.h"
#include "standard_output.h"
#include "topology/file.h"
#include "topology/locality.h"
#include "topology/placement.h"
#include "tugline/error.h"
#include "usage.h"
#include "values.h"

namespace tugline::cli {
namespace {

using base::Json;

// A plan is simulated by going through every step of every rank, about a microsecond each.
constexpr std::uint64_t kMostSimulatedSteps = 2'000'000;
constexpr std::uint64_t kLongEnoughToSaySo = 200'000;

struct Candidate {
  std::string_view builder;
  /// None: the builder cannot serve the request. One that is not simulated has one rank's program only.
  std::optional<core::Plan> plan;
  std::uint64_t steps = 0;         ///< of all ranks together; at most, if the plan is not simulated
  std::optional<double> estimate;  ///< what communicators choose by; none: sizes that not all ranks know
  std::optional<double> seconds;   ///< simulated; none: too many steps
};

/// Work of the simulation for one rank's program, in steps: what reaches everyone is looked at by everyone.
std::uint64_t work_of(const core::Plan& plan, const core::Program& program) {
  std::uint64_t work = 0;
  for (const auto& step : program) {
    bool everyone = step.kind == core::StepKind::put_packet ||
                    (step.kind == core::StepKind::signal && step.peer == core::kEveryone);
    work += (everyone ? static_cast<std::uint64_t>(plan.ranks) : 1) + step.more.size();
  }
  return work;
}

/// The request for one rank's program: of an all_to_all_v it knows that rank's row and column only.
core::PlanRequest of_one_rank(core::PlanRequest request, std::int32_t rank) {
  request.only_rank = rank;
  if (request.collective != core::Collective::all_to_all_v) return request;
  const auto n = static_cast<std::size_t>(request.ranks);
  const auto r = static_cast<std::size_t>(rank);
  const auto all = std::exchange(request.blocks, {});
  for (std::size_t to = 0; to < n; ++to) request.blocks.push_back(all[r * n + to]);
  for (std::size_t from = 0; from < n; ++from) request.blocks.push_back(all[from * n + r]);
  request.bytes = std::accumulate(request.blocks.begin(), request.blocks.end(), std::uint64_t{0});
  return request;
}

Candidate price(std::string_view builder, const core::PlanRequest& request, const core::CostModel& model) {
  Candidate candidate{.builder = builder};
  if (!core::can_build(builder, request)) return candidate;
  if (request.collective != core::Collective::all_to_all_v)
    candidate.estimate = core::estimate_seconds(builder, request, model);
  // The root's program is the longest; without a root they are of one length.
  candidate.plan = core::build(builder, of_one_rank(request, request.root));
  std::uint64_t work = 0;
  for (const auto& program : candidate.plan->programs[static_cast<std::size_t>(request.root)]) {
    work += work_of(*candidate.plan, program);
    candidate.steps += program.size();
  }
  const auto ranks = static_cast<std::uint64_t>(request.ranks);
  candidate.steps *= ranks;
  if (work * ranks > kMostSimulatedSteps) return candidate;
  if (work * ranks > kLongEnoughToSaySo)
    fmt::print(stderr, "tugline plan: simulating {}, {} steps\n", builder, candidate.steps);
  candidate.plan = core::build(builder, request);
  candidate.steps = 0;
  for (const auto& channels : candidate.plan->programs)
    for (const auto& program : channels) candidate.steps += program.size();
  candidate.seconds = core::predict_seconds(*candidate.plan, model);
  return candidate;
}

/// The plan with the programs of all ranks.
core::Plan whole(const Candidate& candidate, const core::PlanRequest& request) {
  return candidate.seconds ? *candidate.plan : core::build(candidate.builder, request);
}

std::vector<Candidate> build_all(const core::PlanRequest& request, const core::CostModel& model) {
  std::vector<Candidate> candidates;
  for (auto builder : core::builder_names()) candidates.push_back(price(builder, request, model));
  return candidates;
}

struct Chosen {
  const Candidate* candidate = nullptr;
  std::string why;
};

/// What --builder names, else what a communicator would choose.
Chosen choose(const std::vector<Candidate>& candidates, const core::PlanRequest& request,
              const core::CostModel& model, const PlanOptions& options) {
  Chosen chosen{.why = "named by --builder"};
  std::string wanted = options.builder;
  if (wanted.empty()) {
    auto choice = comm::choose_builder(request, model, comm::rules_of_settings());
    wanted = choice.builder;
    chosen.why = choice.reason;
  }
  std::string names;
  for (const auto& candidate : candidates) {
    names += (names.empty() ? "" : ", ") + std::string(candidate.builder);
    if (candidate.builder != wanted) continue;
    if (!candidate.plan) {
      throw UsageError(
          ErrorCode::unsupported,
          fmt::format("builder {} cannot make {} of {} over {} ranks", wanted,
                      core::name_of(options.collective), human_bytes(request.bytes), options.ranks),
          "leave out --builder to see who can");
    }
    chosen.candidate = &candidate;
  }
  if (chosen.candidate == nullptr) {
    throw Error(ErrorCode::not_found, fmt::format("there is no builder \"{}\"", wanted),
                fmt::format("name one of: {}", names));
  }
  return chosen;
}

Json describe(const core::CostModel& model) {
  Json result = Json::object();
  result["signal_seconds"] = model.signal_seconds;
  result["packet_seconds"] = model.packet_seconds;
  result["step_seconds"] = model.step_seconds;
  result["local_bytes_per_second"] = model.local_bytes_per_second;
  result["remote_bytes_per_second"] = model.remote_bytes_per_second;
  result["reduce_bytes_per_second"] = model.reduce_bytes_per_second;
  result["far_signal_seconds"] = model.far_signal_seconds;
  result["far_latency_seconds"] = model.far_latency_seconds;
  result["far_bytes_per_second"] = model.far_bytes_per_second;
  result["cores"] = model.cores;
  Json groups = Json::array();
  for (const auto group : model.groups) groups.push_back(group);
  result["groups"] = std::move(groups);
  return result;
}

int check_file(const PlanOptions& options) {
  core::Plan plan = read_plan(options.check_file);
  auto objection = objection_to(plan, Proof::whole);
  bool right = objection.problem.empty();
  if (options.form == OutputForm::json) {
    Json document = Json::object();
    document["plan"] = plan.name;
    document["ok"] = right;
    document["problem"] = right ? Json() : Json(objection.problem);
    write_output("the verdict", document.dump(2) + "\n");
  } else if (right) {
    write_output("the verdict",
                 fmt::format("plan \"{}\" is right: {} over {} ranks, {} each, reduction order {}\n",
                             plan.name, core::name_of(plan.collective), plan.ranks, human_bytes(plan.bytes),
                             core::name_of(plan.order)));
  } else {
    throw Error(ErrorCode::invalid_argument, fmt::format("plan \"{}\" {}", plan.name, objection.problem),
                objection.remedy, {.operation = options.check_file});
  }
  return right ? kExitOk : kExitFailed;
}

std::string json_of(const Chosen& chosen, const std::vector<Candidate>& candidates,
                    const core::PlanRequest& request, const core::CostModel& model) {
  Json rows = Json::array();
  for (const auto& candidate : candidates) {
    Json row = Json::object();
    row["builder"] = candidate.builder;
    row["estimated_us"] = candidate.estimate ? Json(*candidate.estimate * 1e6) : Json();
    row["simulated_us"] = candidate.seconds ? Json(*candidate.seconds * 1e6) : Json();
    row["steps"] = candidate.plan ? Json(candidate.steps) : Json();
    row["order"] = candidate.plan ? Json(core::name_of(candidate.plan->order)) : Json();
    row["scratch_bytes"] = candidate.plan ? Json(candidate.plan->scratch_bytes) : Json();
    row["chosen"] = &candidate == chosen.candidate;
    rows.push_back(std::move(row));
  }
  Json document = Json::object();
  document["candidates"] = std::move(rows);
  document["why"] = chosen.why;
  document["cost_model"] = describe(model);
  document["plan"] = Json::parse(core::to_json(whole(*chosen.candidate, request)));
  return document.dump(2) + "\n";
}

/// What was asked, e.g. "all_reduce of 1 MiB over 4 ranks, f32 sum".
std::string title_of(const PlanOptions& options, const core::PlanRequest& request) {
  std::string text(core::name_of(options.collective));
  if (has_data(options.collective)) text += " of " + human_bytes(request.bytes);
  text += options.collective == core::Collective::send_recv
              ? fmt::format(" between 2 of {} ranks", options.ranks)
              : fmt::format(" over {}", base::counted(options.ranks, "rank"));
  if (has_data(options.collective)) text += fmt::format(", {}", name_of(options.type));
  if (reduces(options.collective)) text += fmt::format(" {}", name_of(options.op));
  if (options.in_place) text += ", in place";
  return text;
}

/// The steps, if they are wanted, come first: they are many, and the last lines are what stays on the screen.
std::string text_of(const Chosen& chosen, const std::vector<Candidate>& candidates,
                    const PlanOptions& options, const core::PlanRequest& request,
                    const core::CostModel& model) {
  std::string headline = fmt::format("{}, {}{} steps", core::print_header(*chosen.candidate->plan),
                                     chosen.candidate->seconds ? "" : "about ", chosen.candidate->steps);
  std::string text = options.steps ? core::print(whole(*chosen.candidate, request)) + "\n" : "";
  text +=
      fmt::format("# {}, {}{}\n", title_of(options, request), base::counted(model.cores, "core"),
                  request.groups.empty()
                      ? ""
                      : fmt::format(" in {}", base::counted(core::Groups(request.groups).count(), "group")));
  for (const auto& candidate : candidates) {
    const char* mark = &candidate == chosen.candidate ? "->" : "  ";
    if (!candidate.plan) {
      text += fmt::format("{} {:<16}{:>12} us  cannot serve this request\n", mark, candidate.builder, "-");
      continue;
    }
    const auto price = [](const std::optional<double>& seconds) {
      return seconds ? fmt::format("{:.3f}", *seconds * 1e6) : std::string("?");
    };
    text += fmt::format("{} {:<16}{:>12} us  {}  {} scratch {}\n", mark, candidate.builder,
                        price(candidate.estimate),
                        candidate.seconds ? fmt::format("simulated {:>12}", price(candidate.seconds))
                                          : fmt::format("not simulated: about {} steps", candidate.steps),
                        core::name_of(candidate.plan->order), human_bytes(candidate.plan->scratch_bytes));
  }
  text += fmt::format("# chosen: {} ({})\n# {}{}\n", chosen.candidate->builder, chosen.why, headline,
                      options.steps ? "" : "; --steps prints them");
  return text;
}

/// The request that a communicator would make of its builders.
core::PlanRequest request_of(const PlanOptions& options) {
  bool message = options.collective == core::Collective::send_recv;
  auto ranks = static_cast<std::uint64_t>(options.ranks);
  auto setting = options.scratch_bytes.value_or(base::settings().scratch_bytes);
  auto scratch = message ? comm::pair_scratch_bytes(ranks) : comm::rank_scratch_bytes(ranks, setting);
  core::PlanRequest request{.collective = options.collective,
                            .ranks = message ? 2 : options.ranks,
                            .root = has_root(options.collective) ? options.root : 0,
                            .element_bytes = size_of(options.type),
                            .bytes = has_data(options.collective) ? options.bytes : 0,
                            .in_place = options.in_place,
                            .average = reduces(options.collective) && options.op == ReduceOp::avg,
                            .scratch_bytes = message ? scratch : scratch / comm::kHalves};
  if (request.bytes % request.element_bytes != 0) {
    throw UsageError(
        fmt::format("{} bytes are no whole number of {} elements", request.bytes, name_of(options.type)),
        fmt::format("give a multiple of {} as --bytes", request.element_bytes),
        {.operation = "tugline plan"});
  }
  if (core::has_blocks(options.collective)) {
    // As `tugline bench` draws them.
    const bool pairs = options.collective == core::Collective::all_to_all_v;
    const Shape shape = shape_of(options.collective, request.bytes, request.element_bytes, options.ranks);
    request.bytes = 0;
    for (int from = 0; from < (pairs ? options.ranks : 1); ++from) {
      for (int to = 0; to < options.ranks; ++to) {
        auto count = pairs ? shape.between(from, to) : shape.blocks[static_cast<std::size_t>(to)];
        request.blocks.push_back(count * request.element_bytes);
        request.bytes += request.blocks.back();
      }
    }
  }
  return request;
}

/// Where the ranks would run.
core::CostModel machine_of(const PlanOptions& options) {
  core::CostModel model;
  if (!options.topology_file.empty()) {
    const auto topology = topology::load_topology(options.topology_file);
    std::set<int> processors;
    std::vector<std::uint64_t> localities;
    for (const auto& place : topology::place_compact(topology, options.ranks)) {
      processors.insert(place.os_processors.begin(), place.os_processors.end());
      localities.push_back(comm::packed(topology::locality_of(topology, place.os_processors)));
    }
    model.cores = static_cast<int>(processors.size());
    model.groups = comm::groups_of(localities);
    return model;
  }
  model.cores = options.cores.value_or(static_cast<int>(allowed_cpus().size()));
  for (int rank = 0; options.groups > 1 && rank < options.ranks; ++rank)
    model.groups.push_back(rank * options.groups / options.ranks);
  return model;
}

}  // namespace

int plan(const PlanOptions& options) {
  if (!options.check_file.empty()) return check_file(options);
  auto request = request_of(options);
  const auto model = machine_of(options);
  if (request.ranks > 2) request.groups = model.groups;  // two ranks, a message's too, have none
  core::validate(request);
  auto candidates = build_all(request, model);
  auto chosen = choose(candidates, request, model, options);
  write_output("the plan", options.form == OutputForm::json
                               ? json_of(chosen, candidates, request, model)
                               : text_of(chosen, candidates, options, request, model));
  return kExitOk;
}

}  // namespace tugline::cli

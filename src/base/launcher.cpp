// SPDX-License-Identifier: Apache-2.0
#include "base/launcher.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <initializer_list>

#include "tugline/error.h"

namespace tugline::base {
namespace {

using Names = std::initializer_list<std::string_view>;

std::string value_of(const Environment& environment, std::string_view name) {
  const auto entry = environment.find(std::string(name));
  return entry == environment.end() ? std::string() : entry->second;
}

bool has(const Environment& environment, std::string_view name) {
  return !value_of(environment, name).empty();
}

[[noreturn]] void refuse(std::string what, std::string remedy) {
  throw Error(ErrorCode::invalid_argument, std::move(what), std::move(remedy),
              {.operation = "finding this process's rank"});
}

int number_of(const Environment& environment, std::string_view name, int smallest) {
  const int largest = smallest + kMostRanks - 1;  // ranks count from 0, sizes from 1
  const auto text = value_of(environment, name);
  int value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size() || value < smallest || value > largest)
    refuse(fmt::format("{} is \"{}\"", name, text),
           fmt::format("set it to an integer from {} to {}, or unset it", smallest, largest));
  return value;
}

/// Number of the first variable that is set.
std::optional<int> first_number(const Environment& environment, Names names, int smallest) {
  for (const auto name : names)
    if (has(environment, name)) return number_of(environment, name, smallest);
  return std::nullopt;
}

/// A short name from what tells launches apart; the launcher stands in front for people.
std::string derive_job(std::string_view prefix, const Environment& environment, Names names,
                       std::string_view more = {}) {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a: a name, not a secret
  const auto mix = [&](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
    hash = (hash ^ 0xffU) * 1099511628211U;
  };
  for (const auto name : names) mix(value_of(environment, name));
  mix(more);
  return fmt::format("{}-{:016x}", prefix, hash);
}

/// Fills identity from one launcher's variables; false when they are not there.
using Detector = bool (*)(const Environment&, const LaunchFacts&, Identity&, std::string& evidence);

bool from_tugline(const Environment& environment, const LaunchFacts& facts, Identity& identity,
                  std::string& evidence) {
  const bool rank = has(environment, "TUGLINE_RANK");
  const bool size = has(environment, "TUGLINE_SIZE");
  if (!rank && !size) return false;
  if (rank != size)
    refuse(fmt::format("{} is set, but {} is not", rank ? "TUGLINE_RANK" : "TUGLINE_SIZE",
                       rank ? "TUGLINE_SIZE" : "TUGLINE_RANK"),
           "set both, or neither");
  identity.rank = number_of(environment, "TUGLINE_RANK", 0);
  identity.size = number_of(environment, "TUGLINE_SIZE", 1);
  if (identity.size > 1 && !has(environment, "TUGLINE_JOB"))
    refuse(fmt::format("TUGLINE_SIZE is {}, but TUGLINE_JOB is not set", identity.size),
           "give all ranks of the job the same TUGLINE_JOB, and every launch another one");
  identity.job = derive_job("alone", environment, {}, facts.own_process);
  evidence = "TUGLINE_RANK, TUGLINE_SIZE";
  return true;
}

bool from_torchrun(const Environment& environment, const LaunchFacts& facts, Identity& identity,
                   std::string& evidence) {
  if (!has(environment, "RANK") || !has(environment, "WORLD_SIZE")) return false;
  identity.rank = number_of(environment, "RANK", 0);
  identity.size = number_of(environment, "WORLD_SIZE", 1);
  identity.local_rank = first_number(environment, {"LOCAL_RANK"}, 0).value_or(identity.rank);
  identity.restarts = first_number(environment, {"TORCHELASTIC_RESTART_COUNT"}, 0).value_or(0);
  // torchrun repeats run id and port by default, so the agent itself tells its launches apart, where it has
  // started every rank; ranks on other hosts or in other containers have another agent.
  const bool one_agent = has(environment, "TORCHELASTIC_RUN_ID") &&
                         first_number(environment, {"LOCAL_WORLD_SIZE"}, 1) == identity.size;
  identity.job = derive_job("torchrun", environment, {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"},
                            one_agent ? facts.launcher_process : "");
  evidence = "RANK, WORLD_SIZE";
  return true;
}

int local_rank_of(const Environment& environment, int fallback) {
  return first_number(environment, {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}, 0)
      .value_or(fallback);
}

bool from_pmix(const Environment& environment, const LaunchFacts&, Identity& identity,
               std::string& evidence) {
  if (!has(environment, "PMIX_RANK") || !has(environment, "PMIX_NAMESPACE")) return false;
  // PMIx leaves the size to its client library; the launchers that carry it put it beside.
  const auto size = first_number(
      environment, {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, 1);
  if (!size) return false;
  identity.rank = number_of(environment, "PMIX_RANK", 0);
  identity.size = *size;
  identity.local_rank = local_rank_of(environment, identity.rank);
  identity.job = derive_job("pmix", environment, {"PMIX_NAMESPACE", "OMPI_MCA_orte_hnp_uri"});
  evidence = "PMIX_RANK, PMIX_NAMESPACE";
  return true;
}

bool from_open_mpi(const Environment& environment, const LaunchFacts& facts, Identity& identity,
                   std::string& evidence) {
  if (!has(environment, "OMPI_COMM_WORLD_RANK") || !has(environment, "OMPI_COMM_WORLD_SIZE")) return false;
  identity.rank = number_of(environment, "OMPI_COMM_WORLD_RANK", 0);
  identity.size = number_of(environment, "OMPI_COMM_WORLD_SIZE", 1);
  identity.local_rank = local_rank_of(environment, identity.rank);
  const bool named = has(environment, "OMPI_MCA_ess_base_jobid") ||
                     has(environment, "OMPI_MCA_orte_hnp_uri") || has(environment, "PMIX_NAMESPACE");
  identity.job = derive_job("openmpi", environment,
                            {"OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri", "PMIX_NAMESPACE"},
                            named ? "" : facts.launcher_process);
  evidence = "OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE";
  return true;
}

bool from_pmi(const Environment& environment, const LaunchFacts& facts, Identity& identity,
              std::string& evidence) {
  if (!has(environment, "PMI_RANK") || !has(environment, "PMI_SIZE")) return false;
  identity.rank = number_of(environment, "PMI_RANK", 0);
  identity.size = number_of(environment, "PMI_SIZE", 1);
  identity.local_rank = local_rank_of(environment, identity.rank);
  const bool named = has(environment, "PMI_JOBID") || has(environment, "PMI_PORT") ||
                     (has(environment, "SLURM_JOB_ID") && has(environment, "SLURM_STEP_ID"));
  identity.job = derive_job("pmi", environment, {"PMI_JOBID", "PMI_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID"},
                            named ? "" : facts.launcher_process);
  evidence = "PMI_RANK, PMI_SIZE";
  return true;
}

bool from_slurm(const Environment& environment, const LaunchFacts&, Identity& identity,
                std::string& evidence) {
  // A batch script and the shell of an allocation have the counts, but only a step has ranks.
  if (!has(environment, "SLURM_PROCID") || !has(environment, "SLURM_STEP_ID")) return false;
  const auto size = first_number(environment, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, 1);
  if (!size) return false;
  identity.rank = number_of(environment, "SLURM_PROCID", 0);
  identity.size = *size;
  identity.local_rank = first_number(environment, {"SLURM_LOCALID"}, 0).value_or(identity.rank);
  identity.job = derive_job("slurm", environment, {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"});
  evidence = "SLURM_PROCID, SLURM_NTASKS";
  return true;
}

constexpr std::pair<Launcher, Detector> kDetectors[] = {
    {Launcher::tugline, from_tugline},   {Launcher::torchrun, from_torchrun}, {Launcher::pmix, from_pmix},
    {Launcher::open_mpi, from_open_mpi}, {Launcher::pmi, from_pmi},           {Launcher::slurm, from_slurm}};

/// Variables that only a launcher sets, and those that it must have set with them, each by one of its names.
struct Launch {
  Launcher launcher;
  Names signs;
  std::initializer_list<Names> needed;
};
// RANK and WORLD_SIZE are names that anybody may use: without its run id they are no sign of torchrun.
const Launch kLaunches[] = {
    {Launcher::torchrun, {"TORCHELASTIC_RUN_ID"}, {{"RANK"}, {"WORLD_SIZE"}}},
    {Launcher::pmix,
     {"PMIX_RANK"},
     {{"PMIX_NAMESPACE"}, {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}}},
    {Launcher::open_mpi,
     {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
     {{"OMPI_COMM_WORLD_RANK"}, {"OMPI_COMM_WORLD_SIZE"}}},
    {Launcher::pmi, {"PMI_RANK", "PMI_SIZE"}, {{"PMI_RANK"}, {"PMI_SIZE"}}},
    {Launcher::slurm, {"SLURM_STEP_ID"}, {{"SLURM_PROCID"}, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}}}};

std::string_view first_set(const Environment& environment, Names names) {
  const auto* found =
      std::find_if(names.begin(), names.end(), [&](std::string_view name) { return has(environment, name); });
  return found == names.end() ? std::string_view() : *found;
}

/// A process that some launcher has started, but that cannot know its rank, must not run as a job of its own.
void refuse_half_a_launch(const Environment& environment) {
  const auto remedy = [](std::string_view sign) {
    return fmt::format(
        "start it by a launcher that sets both, or set TUGLINE_RANK, TUGLINE_SIZE and TUGLINE_JOB; "
        "to run alone, unset {}",
        sign);
  };
  for (const auto& [launcher, signs, needed] : kLaunches) {
    const auto sign = first_set(environment, signs);
    if (sign.empty()) continue;
    for (const auto& names : needed) {
      if (first_set(environment, names).empty())
        refuse(fmt::format("{} is \"{}\", as from {}, but {} is not set", sign, value_of(environment, sign),
                           name_of(launcher), *names.begin()),
               remedy(sign));
    }
  }
  // A batch script is no step; Slurm numbers it 0 and gives it the counts of the allocation.
  if (has(environment, "SLURM_PROCID")) {
    first_number(environment, {"SLURM_NTASKS"}, 1);
    if (number_of(environment, "SLURM_PROCID", 0) != 0)
      refuse(fmt::format("SLURM_PROCID is \"{}\", but SLURM_STEP_ID is not set",
                         value_of(environment, "SLURM_PROCID")),
             remedy("SLURM_PROCID"));
  }
}

void check_job(const std::string& job, std::string_view source) {
  const bool fits = !job.empty() && job.size() <= 64 && job.front() != '.' &&
                    std::all_of(job.begin(), job.end(), [](unsigned char c) {
                      return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
                    });
  if (!fits)
    refuse(fmt::format("{} is \"{}\"", source, job),
           "name the job with 1 to 64 of A-Z a-z 0-9 . _ - (not a dot first)");
}

}  // namespace

std::string_view name_of(Launcher launcher) noexcept {
  constexpr std::string_view kNames[] = {"the call", "tugline", "torchrun", "PMIx",
                                         "Open MPI", "PMI",     "Slurm",    "nobody (alone)"};
  return kNames[static_cast<std::size_t>(launcher)];
}

std::span<const std::string_view> launch_variables() noexcept {
  static constexpr std::string_view kVariables[] = {"RANK",
                                                    "WORLD_SIZE",
                                                    "LOCAL_RANK",
                                                    "MASTER_ADDR",
                                                    "MASTER_PORT",
                                                    "TORCHELASTIC_RUN_ID",
                                                    "TORCHELASTIC_RESTART_COUNT",
                                                    "OMPI_COMM_WORLD_RANK",
                                                    "OMPI_COMM_WORLD_SIZE",
                                                    "PMI_RANK",
                                                    "PMI_SIZE",
                                                    "PMI_FD"};
  return kVariables;
}

Identity detect_identity(const Environment& environment, const LaunchFacts& facts,
                         const IdentityRequest& request) {
  Identity identity;
  std::string evidence;
  if (request.rank.has_value() != request.size.has_value())
    refuse(fmt::format("the call gives the {} but not the {}", request.rank ? "rank" : "size",
                       request.rank ? "size" : "rank"),
           "give both, or neither");
  if (request.rank) {
    identity.launcher = Launcher::call;
    identity.rank = *request.rank;
    identity.size = *request.size;
    identity.local_rank = identity.rank;
    identity.job = derive_job("alone", environment, {}, facts.own_process);
    if (identity.size > 1 && !request.job && !has(environment, "TUGLINE_JOB"))
      refuse(fmt::format("the call gives size {} but no job name", identity.size),
             "name the job in the call or in TUGLINE_JOB");
  } else {
    const auto* found = std::find_if(
        std::begin(kDetectors), std::end(kDetectors),
        [&](const auto& candidate) { return candidate.second(environment, facts, identity, evidence); });
    if (found != std::end(kDetectors)) {
      identity.launcher = found->first;
      if (identity.launcher == Launcher::tugline) identity.local_rank = identity.rank;
    } else {
      refuse_half_a_launch(environment);
      identity.job = derive_job("alone", environment, {}, facts.own_process);
    }
    if (const auto local = first_number(environment, {"TUGLINE_LOCAL_RANK"}, 0)) identity.local_rank = *local;
  }
  if (has(environment, "TUGLINE_JOB")) identity.job = value_of(environment, "TUGLINE_JOB");
  if (request.job) identity.job = *request.job;
  check_job(identity.job, request.job ? "the call's job" : "TUGLINE_JOB");
  if (identity.size < 1 || identity.rank < 0 || identity.rank >= identity.size)
    refuse(fmt::format("rank {} of {} ranks, from {}", identity.rank, identity.size,
                       evidence.empty() ? std::string(name_of(identity.launcher)) : evidence),
           "ranks are numbered from 0 to size - 1");
  identity.description =
      fmt::format("rank {} of {} from {}{}, job {}", identity.rank, identity.size, name_of(identity.launcher),
                  evidence.empty() ? "" : fmt::format(" ({})", evidence), identity.job);
  return identity;
}

Identity identity(const IdentityRequest& request) {
  settings();  // a wrong one is this call's error; the log, which asks for them too, could only print it
  const auto environment = process_environment();
  auto found = detect_identity(environment, launch_facts(environment), request);
  log(LogLevel::info, "{}", found.description);
  return found;
}

}  // namespace tugline::base

// SPDX-License-Identifier: Apache-2.0
// `tugline bench`: starts the ranks (itself once more per rank, or threads), or is one of them.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>

#include "base/launcher.h"
#include "base/random.h"
#include "base/settings.h"
#include "bench/measure.h"
#include "bench/report.h"
#include "bench/sweep.h"
#include "commands.h"
#include "files.h"
#include "launch/job.h"
#include "launch/machine.h"
#include "launch/program.h"
#include "tugline/error.h"
#include "tugline/job.h"
#include "usage.h"

namespace tugline::cli {
namespace {

constexpr int kDefaultRanks = 2;

std::string describe(const Device& device) {
  const auto& info = device.info();
  return fmt::format("{}:{} {}", name_of(info.kind), info.index, info.name);
}

/// Cores that this process may use; a rank that is bound to one knows the number from its launcher only.
int cores() {
  return static_cast<int>(allowed_cpus().size());
}

void require_root(const BenchOptions& options, int ranks) {
  if (options.root < ranks) return;
  throw UsageError(fmt::format("root {} is not below the number of ranks {}", options.root, ranks),
                   "give a smaller -r, or more ranks", {.operation = "tugline bench"});
}

/// One rank, in this process or thread. Nothing is printed before all that can be refused has been looked at.
int be_rank(const BenchOptions& options, Job& job) {
  require_root(options, job.size());
  auto plan = plan_of(options);
  if (plan && plan->ranks != job.size()) {
    throw UsageError(
        fmt::format("plan \"{}\" is for {} ranks, the job has {}", plan->name, plan->ranks, job.size()),
        fmt::format("start {} ranks", plan->ranks), {.operation = options.plan_file});
  }
  std::optional<Report> report;
  if (job.rank() == 0) {
    report.emplace(options, Setting{.ranks = job.size(),
                                    .cores = options.launcher_cores.value_or(cores()),
                                    .device = describe(job.device())});
    report->begin(notes_on_sizes(options, job.size()));
  }
  auto wrong = measure(options, job, plan, report ? &*report : nullptr);
  if (report) report->finish();
  // A rank that ends with 1 makes the launcher end the others: not before the summary is out.
  job.communicator().barrier();
  return wrong == 0 ? kExitOk : kExitFailed;
}

/// A rank that bench itself has started. One that stops because another ended leaves it to the launcher to
/// say whose end it was: the launcher sees that end, too, and ends this process.
int be_launched_rank(const BenchOptions& options) {
  constexpr int kLauncherActsWithinMs = 5000;
  try {
    auto job = Job::join();
    return be_rank(options, job);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::peer_lost) throw;
    ::poll(nullptr, 0, kLauncherActsWithinMs);  // until SIGTERM
    throw;
  }
}

int start_processes(const BenchOptions& options, int ranks) {
  JobRequest request{.program = own_program(),
                     .arguments = {"tugline"},
                     .ranks = ranks,
                     .device = options.device,
                     .prefix = Prefix::none,
                     .on_failure = OnFailure::end_job,
                     .binding = options.binding};
  // What nobody has proved may wait for ever; then every rank says what it waits for.
  if (options.plan_check == CheckedPlan::unchecked && base::settings().fail_after.count() == 0)
    request.environment.emplace_back("TUGLINE_FAIL_AFTER", "10s");
  request.arguments.insert(request.arguments.end(), options.arguments.begin(), options.arguments.end());
  request.arguments.insert(request.arguments.end(), {"--as-rank", fmt::format("{}", cores())});
  auto result = launch_job(request);
  if (result.stop_signal == 0) require_output(result);
  bool ok = result.stop_signal == 0 && std::all_of(result.ranks.begin(), result.ranks.end(),
                                                   [](const RankEnd& end) { return end.ok(); });
  return ok ? kExitOk : kExitFailed;
}

int start_threads(const BenchOptions& options, int ranks) {
  std::string name = "bench-" + base::random_hex(8);
  std::mutex lock;
  std::exception_ptr first;  // the failure that came first: later ones follow from it
  int code = kExitOk;
  auto note = [&](std::exception_ptr failure) {
    std::lock_guard guard(lock);
    if (!first) first = std::move(failure);
  };
  auto body = [&](int rank) {
    try {
      // Not the surrounding job's broker, if there is one.
      auto job = Job::join({.rank = rank, .size = ranks, .job = name, .socket_path = ""});
      try {
        int own = be_rank(options, job);
        std::lock_guard guard(lock);
        code = std::max(code, own);
      } catch (...) {
        note(std::current_exception());  // before leaving the job, which makes the others fail
      }
    } catch (...) {
      note(std::current_exception());
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
  for (auto& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
  return code;
}

/// The option that says how bench is to start ranks itself, empty if none does.
std::string_view first_option_of_own_ranks(const BenchOptions& options) {
  if (options.ranks) return "--np";
  if (options.rank_kind == RankKind::threads) return "--threads";
  return options.binding != Binding::none ? "--bind" : "";
}

}  // namespace

int bench(const BenchOptions& options) {
  require_device(options.device);
  const auto open_until_written =
      options.json_file.empty() ? base::UniqueFd() : check_writable(options.json_file);
  if (options.launcher_cores) return be_launched_rank(options);
  auto surrounding = base::identity();
  if (surrounding.launcher != base::Launcher::alone) {
    auto own_ranks = first_option_of_own_ranks(options);
    // A launcher's job of one is a place to work in, such as an interactive step.
    if (surrounding.size > 1 && !own_ranks.empty()) {
      throw UsageError(
          fmt::format("{} inside a job of {} ranks would make as many benches", own_ranks, surrounding.size),
          fmt::format("leave {} out to measure the surrounding job, or start bench outside of it", own_ranks),
          {.operation = "tugline bench, " + surrounding.description});
    }
    if (own_ranks.empty()) {
      auto job = Job::join();
      return be_rank(options, job);
    }
  }
  auto plan = plan_of(options);
  int ranks = options.ranks.value_or(plan ? plan->ranks : kDefaultRanks);
  require_root(options, ranks);
  return options.rank_kind == RankKind::threads ? start_threads(options, ranks)
                                                : start_processes(options, ranks);
}

}  // namespace tugline::cli

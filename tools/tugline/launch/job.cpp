// SPDX-License-Identifier: Apache-2.0
#include "launch/job.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <optional>

#include "base/log.h"
#include "base/random.h"
#include "base/settings.h"
#include "broker/broker_process.h"
#include "broker/launcher_link.h"
#include "launch/environment.h"
#include "launch/guard.h"
#include "launch/machine.h"
#include "standard_output.h"
#include "tugline/error.h"
#include "usage.h"

namespace tugline::cli {
namespace {

[[noreturn]] void throw_no_broker(const std::string& socket_path) {
  throw UsageError(ErrorCode::not_found, fmt::format("no broker answers at \"{}\"", socket_path),
                   "start one with `tugline broker --job NAME` and give the path that it prints as --broker");
}

/// A broker that somebody else runs: the job's name is its directory's, as the broker itself derives it.
void use_running_broker(const std::string& socket_path, RankEnvironment& common) {
  struct stat info {};
  if (::stat(socket_path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) {
    throw_no_broker(socket_path);
  }
  const auto& settings = base::settings();
  auto path = std::filesystem::absolute(socket_path);
  common.socket_path = path.string();
  common.job = settings.job.empty() ? path.parent_path().filename().string() : settings.job;
  common.token = settings.token;
}

/// A name that was given for other things is not to be lost without a word. In a rank it is the job's around
/// this one.
void warn_of_unused_name(const std::string& job) {
  const auto& settings = base::settings();
  if (settings.job.empty() || settings.rank) return;
  base::log(base::LogLevel::warn,
            "TUGLINE_JOB \"{}\" is not this job's name: its ranks get one of its own, {}; to run in a job of "
            "that name "
            "start `tugline broker --job {}` and give its socket as --broker",
            settings.job, job, settings.job);
}

/// Connects to the job's broker; one of the user's that is not there is a wrong word of the command line.
broker::LauncherLink link_to(const RankEnvironment& common, bool named_by_user) {
  try {
    return {common.socket_path, common.job, common.token};
  } catch (const Error& error) {
    if (!named_by_user || error.code() != ErrorCode::not_found) throw;
    throw_no_broker(common.socket_path);
  }
}

}  // namespace

void require_output(const LaunchResult& result) {
  if (result.output_error != 0) fail_output("the ranks' output", result.output_error);
  // What is wrong with standard error can be said nowhere.
  if (result.error_error == EPIPE) throw ReaderGone{};
}

void require_device(DeviceChoice device) {
  if (device != DeviceChoice::cuda) return;
  throw UsageError(ErrorCode::unsupported, "--device cuda: this build has no CUDA backend",
                   "give --device host, or auto");
}

LaunchResult launch_job(const JobRequest& request) {
  require_device(request.device);
  base::settings();  // a wrong one is an error here, before a broker and ranks find the same
  require_descriptors(request.ranks);
  require_file_size(request.ranks);
  RankEnvironment common{.size = request.ranks, .master_port = free_port(), .added = request.environment};
  std::optional<broker::BrokerProcess> broker;
  if (request.broker_socket.empty()) {
    common.job = "run-" + base::random_hex(8);
    warn_of_unused_name(common.job);
    broker.emplace(common.job);
    common.socket_path = broker->socket_path();
    common.token = broker->token_hex();
  } else {
    use_running_broker(request.broker_socket, common);
  }
  const Guard guard;
  common.added.emplace_back(Guard::kVariable, guard.mark());
  // Nobody may wait for a rank that ended before the broker met it.
  auto link = link_to(common, !broker);
  return launch({.program = request.program,
                 .arguments = request.arguments,
                 .ranks = request.ranks,
                 .environment = [&common](int rank) { return environment_of(common, rank); },
                 .prefix = request.prefix,
                 .on_failure = request.on_failure,
                 .binding = request.binding,
                 .grace = request.grace,
                 .on_end =
                     [&link](const RankEnd& end) {
                       link.rank_ended(end.rank, {end.exit_code, end.signal});
                     },
                 .broker = broker ? broker->pid() : 0,
                 .broker_link = link.descriptor()});
}

}  // namespace tugline::cli

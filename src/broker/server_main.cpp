// SPDX-License-Identifier: Apache-2.0
#include "broker/server_main.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <utility>

#include "base/log.h"
#include "base/settings.h"
#include "broker/endpoint.h"
#include "broker/identity.h"
#include "broker/server.h"
#include "broker/spawn.h"
#include "broker/start_report.h"
#include "tugline/error.h"

namespace tugline::broker {
namespace {

std::atomic<Server*> running{nullptr};

/// The server that signals stop, for as long as it can be stopped.
class Running {
 public:
  explicit Running(Server& server) noexcept { running.store(&server); }
  ~Running() { running.store(nullptr); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

void on_signal(int) {
  const int saved = errno;
  if (auto* server = running.load()) server->stop();
  errno = saved;
}

void take_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::sigaction(signal, &action, nullptr);
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
    base::log(base::LogLevel::info, "the broker keeps its limit of open files");
}

base::UniqueFd handed_over(int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFD);
  if (flags < 0 || ::fcntl(descriptor, F_SETFD, flags | FD_CLOEXEC) != 0)
    throw Error(ErrorCode::invalid_usage,
                fmt::format("a job-scoped broker was started without its descriptor {}", descriptor),
                "use `tugline broker` without --job-scoped; the library starts job-scoped ones itself");
  return base::UniqueFd(descriptor);
}

void serve(const BrokerOptions& options, StartReport& report) {
  raise_descriptor_limit();
  const auto& settings = base::settings();
  ServerOptions server_options;
  server_options.limits = {settings.member_limit_bytes, settings.job_limit_bytes};
  server_options.job = options.job.empty() ? settings.job : options.job;
  const auto place = place_of(options.socket_path, server_options.job);
  base::UniqueFd directory;
  if (options.scope == Scope::job_scoped) {
    server_options.ending = Ending::with_last_member;
    directory = handed_over(kLockedDirectoryDescriptor);
    auto owner = handed_over(kOwnerDescriptor);
    if (check_pidfd(owner.get(), 0) == PidfdVerdict::genuine) server_options.owner = std::move(owner);
  }
  auto endpoint = std::make_unique<Endpoint>(place, settings.token, std::move(directory));
  Server server(std::move(server_options), std::move(endpoint));
  const Running stoppable(server);
  take_signals();
  if (options.on_ready) options.on_ready(place.socket_path);
  report.serves();
  // Nobody else looks after what was left by starts that were killed.
  if (place.derived_from_job) remove_left_overs(place.runtime_directory);
  server.run();
}

}  // namespace

int broker_main(const BrokerOptions& options) {
  ::umask(077);
  StartReport report;
  if (options.scope == Scope::job_scoped) report = StartReport(handed_over(kReportDescriptor));
  try {
    serve(options, report);
  } catch (const Error& error) {
    report.failed(error);
    throw;
  }
  return 0;
}

}  // namespace tugline::broker

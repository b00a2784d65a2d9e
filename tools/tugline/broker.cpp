// SPDX-License-Identifier: Apache-2.0
// `tugline broker`: a broker that outlives its jobs, or (hidden) the one that a job starts for itself.
#include "base/json.h"
#include "broker/place.h"
#include "broker/server_main.h"
#include "commands.h"
#include "standard_output.h"
#include "tugline/error.h"
#include "usage.h"

namespace tugline::cli {

namespace {

/// --job and --socket name places; what cannot be one is a wrong word of the command line.
void require_place(const BrokerCommandOptions& options) {
  try {
    if (!options.job.empty()) tugline::broker::check_job_name(options.job);
    if (!options.socket_path.empty()) tugline::broker::place_of(options.socket_path, options.job);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    throw UsageError(error.what_failed(), error.what_to_do(), {.operation = "tugline broker"},
                     error.location());
  }
}

}  // namespace

int broker(const BrokerCommandOptions& options) {
  if (options.scope == tugline::broker::Scope::standing) require_place(options);
  auto say = [form = options.form, job = options.job](const std::string& socket_path) {
    if (form == OutputForm::json) {
      auto document = base::Json::object();
      document["job"] = job;
      document["socket_path"] = socket_path;
      write_output("the socket's path", document.dump() + "\n");
    } else {
      write_output("the socket's path", socket_path + "\n");
    }
  };
  tugline::broker::BrokerOptions serving{.job = options.job, .socket_path = options.socket_path};
  serving.scope = options.scope;
  if (options.scope == tugline::broker::Scope::standing) serving.on_ready = say;
  return tugline::broker::broker_main(serving) == 0 ? kExitOk : kExitFailed;
}

}  // namespace tugline::cli

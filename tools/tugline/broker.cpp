// SPDX-License-Identifier: Apache-2.0
// `tugline broker`: a broker that outlives its jobs, or (hidden) the one that a job starts for itself.
#include "base/json.h"
#include "broker/server_main.h"
#include "commands.h"
#include "standard_output.h"

namespace tugline::cli {

int broker(const BrokerCommandOptions& options) {
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

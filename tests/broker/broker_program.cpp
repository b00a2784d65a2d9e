// SPDX-License-Identifier: Apache-2.0
// The broker as a program of its own, for tests that need no command line around it:
//   broker_program broker [--job-scoped] [--job NAME] [--socket PATH]
#include <CLI/CLI.hpp>
#include <cstdio>

#include "broker/server_main.h"
#include "tugline/error.h"

int main(int argc, char** argv) {
  CLI::App app("broker for tests");
  tugline::broker::BrokerOptions options;
  auto* command = app.add_subcommand("broker");
  app.require_subcommand(1);
  bool job_scoped = false;
  command->add_flag("--job-scoped", job_scoped);
  command->add_option("--job", options.job);
  command->add_option("--socket", options.socket_path);
  CLI11_PARSE(app, argc, argv);
  if (job_scoped) options.scope = tugline::broker::Scope::job_scoped;
  try {
    return tugline::broker::broker_main(options);
  } catch (const tugline::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

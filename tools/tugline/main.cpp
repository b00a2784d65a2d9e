// SPDX-License-Identifier: Apache-2.0
// The `tugline` command: parses, hands over to a subcommand, turns errors into text and exit code.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "commands.h"
#include "parse.h"
#include "tugline/error.h"

namespace {

using namespace tugline::cli;

struct Dispatch {
  int operator()(const ShowText& show) const {
    std::fputs(show.text.c_str(), stdout);
    return kExitOk;
  }
  int operator()(const RunOptions& options) const { return run(options); }
  int operator()(const BenchOptions& options) const { return bench(options); }
  int operator()(const PlanOptions& options) const { return plan(options); }
  int operator()(const DoctorOptions& options) const { return doctor(options); }
  int operator()(const ConfigOptions& options) const { return config(options); }
  int operator()(const BrokerCommandOptions& options) const { return broker(options); }
};

void print_error(const char* text) {
  std::fprintf(stderr, "%s\n", text);
}

}  // namespace

int main(int argc, char** argv) {
  Command command;
  try {
    command = parse(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    print_error(error.what());
    return kExitUsage;
  }
  try {
    int code = std::visit(Dispatch{}, command);
    if (std::fflush(stdout) != 0) {
      std::perror("tugline: cannot write standard output");
      return kExitFailed;
    }
    return code;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    print_error(error.what());
    return kExitFailed;
  }
}

// SPDX-License-Identifier: Apache-2.0
// The `tugline` command: parses, hands over to a subcommand, turns errors into text and exit code.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "commands.h"
#include "parse.h"
#include "standard_output.h"
#include "tugline/error.h"
#include "usage.h"

namespace {

using namespace tugline::cli;

struct Dispatch {
  int operator()(const ShowText& show) const {
    write_output("the text", show.text);
    return kExitOk;
  }
  int operator()(const RunOptions& options) const { return run(options); }
  int operator()(const BenchOptions& options) const { return bench(options); }
  int operator()(const PlanOptions& options) const { return plan(options); }
  int operator()(const DoctorOptions& options) const { return doctor(options); }
  int operator()(const ConfigOptions& options) const { return config(options); }
  int operator()(const BrokerCommandOptions& options) const { return broker(options); }
};

void print(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  prepare_standard_descriptors();
  try {
    auto parsed = parse(std::vector<std::string>(argv + 1, argv + argc));
    for (const auto& note : parsed.notes) print("tugline: " + note);
    return std::visit(Dispatch{}, parsed.command);
  } catch (const ReaderGone&) {
    end_as_sigpipe();
  } catch (const UsageError& error) {
    print(error.what());
    return kExitUsage;
  } catch (const std::exception& error) {
    print(error.what());
    return kExitFailed;
  }
}

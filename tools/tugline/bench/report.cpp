// SPDX-License-Identifier: Apache-2.0
#include "bench/report.h"

#include <fmt/format.h>

#include "base/count.h"
#include "base/json.h"
#include "bench/sweep.h"
#include "files.h"
#include "help.h"
#include "standard_output.h"
#include "values.h"

namespace tugline::cli {
namespace {

using base::Json;

constexpr std::string_view kTable = "the bench's table";

std::string command_of(const BenchOptions& options) {
  std::string command = "tugline";
  for (const auto& argument : options.arguments) {
    if (argument == "--as-rank") break;  // the launcher's own, always last
    command += " " + argument;
  }
  return command;
}

std::string_view kind_of(const BenchOptions& options) {
  return options.rank_kind == RankKind::threads ? "threads" : "processes";
}

std::string_view form_of(const BenchOptions& options) {
  if (options.graph_replays > 0) return "graph";
  return options.form == CallForm::stream ? "stream" : "blocking";
}

std::string_view buffers_of(const BenchOptions& options) {
  switch (options.buffers) {
    case BufferKind::private_memory:
      return "private";
    case BufferKind::library:
      return "library";
    case BufferKind::registered:
      return "registered";
  }
  return "";
}

/// Four significant digits, as far as they fit.
std::string short_number(double value) {
  if (value < 10) return fmt::format("{:.3f}", value);
  if (value < 100) return fmt::format("{:.2f}", value);
  if (value < 10000) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

Json json_of(const std::optional<Measurement>& measurement) {
  if (!measurement) return {};
  Json result = Json::object();
  result["time_us"] = measurement->mean_us;
  result["p50_us"] = measurement->p50_us;
  result["p99_us"] = measurement->p99_us;
  result["min_us"] = measurement->min_us;
  result["max_us"] = measurement->max_us;
  result["algbw_gbps"] = measurement->algorithm_gbps;
  result["busbw_gbps"] = measurement->bus_gbps;
  result["wrong"] = measurement->wrong ? Json(*measurement->wrong) : Json();
  return result;
}

}  // namespace

std::string columns_of(const std::optional<Measurement>& measurement) {
  if (!measurement) return fmt::format("  {:>8}  {:>6}  {:>6}  {:>6}", "N/A", "N/A", "N/A", "N/A");
  std::string wrong = measurement->wrong ? fmt::format("{}", *measurement->wrong) : "N/A";
  return fmt::format("  {:>8}  {:>6.2f}  {:>6.2f}  {:>6}", short_number(measurement->mean_us),
                     measurement->algorithm_gbps, measurement->bus_gbps, wrong);
}

Report::Report(const BenchOptions& options, Setting setting)
    : options_(options), setting_(std::move(setting)) {}

void Report::begin(const std::vector<std::string>& notes) const {
  std::string text =
      fmt::format("# {}, {} ({}), {}, {}\n", help::version(), base::counted(setting_.ranks, "rank"),
                  kind_of(options_), base::counted(setting_.cores, "core"), setting_.device);
  text +=
      fmt::format("# {} calls, {} buffers, {} warm-up and {} timed rounds, {} checked\n", form_of(options_),
                  buffers_of(options_), options_.warmup, options_.iterations, options_.checks);
  text += fmt::format("# command: {}\n", command_of(options_));
  for (const auto& note : notes) text += fmt::format("# note: {}\n", note);
  auto group = [](std::string_view time, std::string_view algorithm, std::string_view bus,
                  std::string_view wrong) {
    return fmt::format("  {:>8}  {:>6}  {:>6}  {:>6}", time, algorithm, bus, wrong);
  };
  text += fmt::format("#\n# {:>72}{:>33}\n", "out-of-place", "in-place");
  text += fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}{}{}\n", "size", "count", "type", "redop", "root",
                      group("time", "algbw", "busbw", "#wrong"), group("time", "algbw", "busbw", "#wrong"));
  text += fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}{}{}\n", "(B)", "(elements)", "", "", "",
                      group("(us)", "(GB/s)", "(GB/s)", ""), group("(us)", "(GB/s)", "(GB/s)", ""));
  write_output(kTable, text);
}

void Report::add(const Line& line) {
  std::string type(has_data(options_.collective) ? column_name(line.type) : "none");
  std::string op(reduces(options_.collective) ? name_of(line.op) : "none");
  int root = has_root(options_.collective) ? options_.root : -1;
  write_output(kTable, fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}{}{}\n", line.bytes, line.count, type,
                                   op, root, columns_of(line.out_of_place), columns_of(line.in_place)));
  for (const auto* measurement : {&line.out_of_place, &line.in_place}) {
    if (*measurement) wrong_ += (*measurement)->wrong.value_or(0);
  }
  lines_.push_back(line);
}

void Report::finish() {
  double sum = 0;
  int count = 0;
  Json rows = Json::array();
  for (const auto& line : lines_) {
    for (const auto* measurement : {&line.out_of_place, &line.in_place}) {
      if (!*measurement) continue;
      sum += (*measurement)->bus_gbps;
      ++count;
    }
    Json row = Json::object();
    row["bytes"] = line.bytes;
    row["count"] = line.count;
    row["type"] = has_data(options_.collective) ? Json(name_of(line.type)) : Json();
    row["op"] = reduces(options_.collective) ? Json(name_of(line.op)) : Json();
    row["root"] = has_root(options_.collective) ? Json(options_.root) : Json();
    row["batch"] = line.batch;
    row["out_of_place"] = json_of(line.out_of_place);
    row["in_place"] = json_of(line.in_place);
    rows.push_back(std::move(row));
  }
  double average = count > 0 ? sum / count : 0;
  write_output(kTable, fmt::format("# Out of bounds values : {} {}\n# Avg bus bandwidth    : {:.4f}\n#\n",
                                   wrong_, wrong_ == 0 ? "OK" : "FAILED", average));
  if (options_.json_file.empty()) return;
  Json document = Json::object();
  document["version"] = help::version();
  document["command"] = command_of(options_);
  document["collective"] = core::name_of(options_.collective);
  document["ranks"] = setting_.ranks;
  document["rank_kind"] = kind_of(options_);
  document["cores"] = setting_.cores;
  document["device"] = setting_.device;
  document["form"] = form_of(options_);
  document["buffers"] = buffers_of(options_);
  document["iterations"] = options_.iterations;
  document["warmup"] = options_.warmup;
  document["checks"] = options_.checks;
  document["wrong"] = wrong_;
  document["average_busbw_gbps"] = average;
  document["rows"] = std::move(rows);
  write_file(options_.json_file, document.dump(2) + "\n");
}

}  // namespace tugline::cli

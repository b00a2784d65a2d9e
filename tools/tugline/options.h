// SPDX-License-Identifier: Apache-2.0
// What the command line says, as plain structs: parse.cpp fills them, the subcommands read them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "broker/server_main.h"
#include "core/plan/plan.h"
#include "tugline/types.h"

namespace tugline::cli {

enum class OutputForm : std::uint8_t { text, json };
enum class Prefix : std::uint8_t { rank, none };
enum class OnFailure : std::uint8_t { keep_going, end_job };
enum class LostRanks : std::uint8_t { fail, allowed };
enum class Binding : std::uint8_t { none, core, numa };
enum class DeviceChoice : std::uint8_t { automatic, host, cuda };

struct RunOptions {
  int ranks = 1;
  DeviceChoice device = DeviceChoice::automatic;
  std::vector<std::pair<std::string, std::string>> environment;  ///< added to every rank's
  Prefix prefix = Prefix::rank;
  std::string broker_socket;  ///< of a broker that runs already; empty: start one
  OnFailure on_failure = OnFailure::keep_going;
  LostRanks lost_ranks = LostRanks::fail;
  Binding binding = Binding::none;
  std::chrono::milliseconds grace{5000};  ///< from the signal that ends the job to SIGKILL
  std::vector<std::string> command;
};

enum class RankKind : std::uint8_t { processes, threads };
enum class CallForm : std::uint8_t { blocking, stream };
enum class CheckedPlan : std::uint8_t { required, unchecked };
enum class BufferKind : std::uint8_t { private_memory, library, registered };

struct BenchOptions {
  core::Collective collective = core::Collective::all_reduce;
  std::uint64_t begin_bytes = 1 << 20;
  std::uint64_t end_bytes = 1 << 20;
  std::uint64_t step_factor = 0;  ///< 0 or 1: steps of step_bytes
  std::uint64_t step_bytes = 1 << 20;
  int iterations = 20;
  int warmup = 5;
  int checks = 1;  ///< verified operations per line and buffer form
  int batch = 0;   ///< operations per time stamp; 0: by size
  std::vector<DataType> types{DataType::f32};
  std::vector<ReduceOp> operators{ReduceOp::sum};
  int root = 0;
  int graph_replays = 0;  ///< 0: no graph
  CallForm form = CallForm::blocking;
  BufferKind buffers = BufferKind::private_memory;
  std::uint64_t offset_bytes = 0;     ///< of the buffers' begin from a page's
  std::optional<int> ranks;           ///< none: as launched, else 2
  std::optional<int> launcher_cores;  ///< given to the ranks that bench itself starts: cores of the launcher
  RankKind rank_kind = RankKind::processes;
  DeviceChoice device = DeviceChoice::automatic;
  Binding binding = Binding::none;
  std::string plan_file;
  CheckedPlan plan_check = CheckedPlan::required;
  std::string json_file;
  std::vector<std::string> arguments;  ///< as given, for the header and for the ranks
};

struct PlanOptions {
  core::Collective collective = core::Collective::all_reduce;
  int ranks = 2;
  std::uint64_t bytes = 1 << 20;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  bool in_place = false;
  bool steps = false;                          ///< print every step
  std::string builder;                         ///< empty: the cheapest
  std::string check_file;                      ///< a hand-written plan to check instead
  std::optional<std::uint64_t> scratch_bytes;  ///< as the setting of that name
  std::optional<int> cores;
  int groups = 0;             ///< of ranks near each other, of equal size; 0: as the topology says, or none
  std::string topology_file;  ///< ranks are placed compactly on that machine; empty: anywhere on this one
  OutputForm form = OutputForm::text;
};

struct DoctorOptions {
  int ranks = 0;    ///< 0: as many as there are cores
  std::string job;  ///< a running job whose memory is shown; empty: the machine is checked
  OutputForm form = OutputForm::text;
};

struct ConfigOptions {
  OutputForm form = OutputForm::text;
};

struct BrokerCommandOptions {
  broker::Scope scope = broker::Scope::standing;
  std::string job;
  std::string socket_path;
  OutputForm form = OutputForm::text;
};

/// The command line asked for a text (help, version) that has to go to stdout.
struct ShowText {
  std::string text;
};

using Command = std::variant<ShowText, RunOptions, BenchOptions, PlanOptions, DoctorOptions, ConfigOptions,
                             BrokerCommandOptions>;

struct Parsed {
  Command command;
  std::vector<std::string> notes;  ///< one line each: what was accepted, but may not be what was meant
};

}  // namespace tugline::cli

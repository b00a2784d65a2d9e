// SPDX-License-Identifier: Apache-2.0
// The only file of the tools that knows the command-line library.
#include "parse.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "base/settings.h"
#include "core/control.h"
#include "core/plan/builders.h"
#include "help.h"
#include "launch/environment.h"
#include "tugline/error.h"
#include "usage.h"
#include "values.h"

namespace tugline::cli {
namespace {

constexpr int kMaxRanks = static_cast<int>(core::kMaxMembers);

[[noreturn]] void refuse(std::string_view option, const std::string& why) {
  throw CLI::ValidationError(std::string(option), why);
}

/// An option whose text is turned into a value by `convert`, which gives none for a text it does not know.
template <class T, class Convert>
CLI::Option* add_value(CLI::App& app, const std::string& names, T& target, Convert convert,
                       const std::string& expected, const std::string& help) {
  return app
      .add_option_function<std::string>(
          names,
          [&target, convert, names, expected](const std::string& text) {
            auto value = convert(text);
            if (!value) refuse(names, fmt::format("\"{}\" is not {}", text, expected));
            target = *value;
          },
          help)
      ->take_last();  // as in scripts that add their own options to given ones
}

std::optional<int> parse_whole(const std::string& text) {
  int value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// An option whose text is taken as it is: a path or a name, which is never empty.
CLI::Option* add_text(CLI::App& app, const std::string& names, std::string& target, const std::string& help) {
  return app.add_option_function<std::string>(
      names,
      [&target, names](const std::string& text) {
        if (text.empty()) refuse(names, "its value is empty; give one, or leave the option out");
        target = text;
      },
      help);
}

template <class T>
CLI::Option* add_number(CLI::App& app, const std::string& names, T& target, int low, int high,
                        const std::string& help) {
  return add_value(
      app, names, target,
      [low, high](const std::string& text) -> std::optional<int> {
        auto value = parse_whole(text);
        return value && *value >= low && *value <= high ? value : std::nullopt;
      },
      fmt::format("a whole number from {} to {}", low, high), help);
}

template <class T, class Convert>
void add_list(CLI::App& app, const std::string& names, std::vector<T>& target, int count, Convert convert,
              const std::string& expected, const std::string& help) {
  add_value(
      app, names, target,
      [count, convert](const std::string& text) -> std::optional<std::vector<T>> {
        std::vector<T> values;
        if (text == "all") {
          for (int i = 0; i < count; ++i) values.push_back(static_cast<T>(i));
          return values;
        }
        auto value = convert(text);
        if (!value) return std::nullopt;
        return std::vector<T>{*value};
      },
      expected, help);
}

template <class E>
CLI::Option* add_choice(CLI::App& app, const std::string& names, E& target,
                        std::vector<std::pair<std::string, E>> choices, const std::string& help) {
  std::string expected = "one of";
  for (std::size_t i = 0; i < choices.size(); ++i) expected += (i == 0 ? " " : ", ") + choices[i].first;
  return add_value(
      app, names, target,
      [choices = std::move(choices)](const std::string& text) -> std::optional<E> {
        for (const auto& [name, value] : choices) {
          if (name == text) return value;
        }
        return std::nullopt;
      },
      expected, help);
}

void add_form(CLI::App& app, OutputForm& form) {
  app.add_flag_callback(
      "--json", [&form] { form = OutputForm::json; }, "print JSON instead of text");
}

void add_device(CLI::App& app, DeviceChoice& device) {
  add_choice(app, "--device", device,
             {{"auto", DeviceChoice::automatic}, {"host", DeviceChoice::host}, {"cuda", DeviceChoice::cuda}},
             "where the ranks work: auto, host or cuda (auto)");
}

void add_binding(CLI::App& app, Binding& binding) {
  add_choice(
      app, "--bind", binding, {{"none", Binding::none}, {"core", Binding::core}, {"numa", Binding::numa}},
      "core: rank r runs on the r-th core it may use, round robin; numa: neighbours in rank run on "
      "neighbouring cores, each on its own if there are enough, none on two NUMA nodes unless there are "
      "more nodes than ranks; none: anywhere (none)");
}

constexpr auto kCollectives =
    "a collective: barrier, all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, send_recv, "
    "reduce, gather, scatter, all_gather_v, reduce_scatter_v or all_to_all_v";
constexpr auto kTypes = "a type: i8 u8 i32 u32 i64 u64 f16 bf16 f32 f64";
constexpr auto kOperators = "an operator: sum prod min max avg";
constexpr auto kSize = "a size such as 0, 512, 64K, 16M, 1G";

void describe_run(CLI::App& app, RunOptions& o) {
  add_number(app, "-n,--np", o.ranks, 1, kMaxRanks, "number of ranks (1)");
  add_device(app, o.device);
  app.add_option_function<std::vector<std::string>>(
         "--env",
         [&o](const std::vector<std::string>& pairs) {
           for (const auto& pair : pairs) {
             auto at = pair.find('=');
             if (at == 0 || at == std::string::npos)
               refuse("--env", fmt::format("\"{}\" is not NAME=VALUE", pair));
             if (says_who_a_rank_is(pair.substr(0, at)))
               refuse("--env", fmt::format("{} is what run tells every rank itself; leave it out",
                                           pair.substr(0, at)));
             o.environment.emplace_back(pair.substr(0, at), pair.substr(at + 1));
           }
         },
         "NAME=VALUE for every rank; may be repeated")
      ->expected(1)
      ->take_all();
  app.add_flag_callback(
      "--no-prefix", [&o] { o.prefix = Prefix::none; }, "hand the ranks' output through as it is");
  add_text(app, "--broker", o.broker_socket, "socket of a running `tugline broker`; default: start one");
  app.add_flag_callback(
      "--kill-on-failure", [&o] { o.on_failure = OnFailure::end_job; },
      "end the whole job as soon as one rank fails");
  app.add_flag_callback(
      "--allow-lost", [&o] { o.lost_ranks = LostRanks::allowed; },
      "a rank that a signal killed does not make the job fail if another rank ends with 0");
  add_binding(app, o.binding);
  add_value(
      app, "--grace", o.grace,
      [](const std::string& text) -> std::optional<std::chrono::milliseconds> {
        auto value = parse_whole(text);
        if (!value || *value < 0 || *value > 3600) return std::nullopt;
        return std::chrono::seconds(*value);
      },
      "a whole number of seconds from 0 to 3600", "seconds that ranks have to end before SIGKILL (5)");
  app.prefix_command();
}

void describe_bench(CLI::App& app, BenchOptions& o) {
  add_value(app, "collective", o.collective, parse_collective, kCollectives, "which collective")->required();
  add_value(app, "-b,--minbytes", o.begin_bytes, parse_bytes, kSize, "first size (1M)");
  add_value(app, "-e,--maxbytes", o.end_bytes, parse_bytes, kSize, "last size (as -b, at least 1M)");
  add_value(
      app, "-f,--stepfactor", o.step_factor,
      [](const std::string& text) {
        auto value = parse_bytes(text);
        return value && *value >= 2 ? value : std::nullopt;
      },
      "a factor of at least 2 (to add instead, give -i)", "multiply sizes by");
  add_value(app, "-i,--stepbytes", o.step_bytes, parse_bytes, kSize, "add to sizes, without -f (1M)");
  add_number(app, "-n,--iters", o.iterations, 1, 1'000'000, "timed rounds per line (20)");
  add_number(app, "-w,--warmup_iters", o.warmup, 0, 1'000'000, "rounds before timing (5)");
  add_number(app, "-c,--check", o.checks, 0, 1000, "verified operations per line (1)");
  add_list(app, "-d,--datatype", o.types, kDataTypeCount, parse_type, kTypes, "type, or all (f32)");
  add_list(app, "-o,--op", o.operators, kReduceOpCount, parse_operator, kOperators, "operator, or all (sum)");
  add_number(app, "-r,--root", o.root, 0, kMaxRanks - 1, "root of broadcast, reduce, gather, scatter (0)");
  auto* buffers = add_choice(app, "--buffers", o.buffers,
                             {{"private", BufferKind::private_memory},
                              {"library", BufferKind::library},
                              {"registered", BufferKind::registered}},
                             "private: memory of this process alone, library: allocated by the library, "
                             "registered: private memory that is registered (private)");
  add_choice(app, "-R,--local_register", o.buffers,
             {{"0", BufferKind::private_memory}, {"1", BufferKind::registered}},
             "1: as --buffers registered, 0: as --buffers private (0)")
      ->excludes(buffers);
  add_number(app, "--offset", o.offset_bytes, 0, 4095, "bytes from the start of a page to the buffers (0)");
  add_number(app, "-G,--cudagraph", o.graph_replays, 0, 1'000'000,
             "capture -n operations in a graph and replay it so many times (0: no graph)");
  app.add_flag_callback(
      "--stream", [&o] { o.form = CallForm::stream; }, "enqueue on a stream instead of blocking calls");
  add_number(app, "--batch", o.batch, 0, 1'000'000,
             "operations per time stamp (0: 100 up to 64 bytes and for barrier, else 1)");
  add_number(app, "--np", o.ranks, 1, kMaxRanks, "number of ranks (as launched, else 2)");
  app.add_flag_callback(
      "--threads", [&o] { o.rank_kind = RankKind::threads; }, "ranks are threads of one process");
  add_device(app, o.device);
  add_binding(app, o.binding);
  auto* plan = add_text(app, "--plan", o.plan_file, "run the hand-written plan in this JSON file");
  app.add_flag_callback(
         "--unchecked", [&o] { o.plan_check = CheckedPlan::unchecked; },
         "run the plan even if the checker refuses it")
      ->needs(plan);
  add_text(app, "--json", o.json_file, "also write every line with p50 and p99 to this file")->take_last();
  add_number(app, "--as-rank", o.launcher_cores, 1, 1 << 20, "")->group("");
}

/// What the setting scratch_bytes may be.
std::pair<std::uint64_t, std::uint64_t> scratch_range() {
  for (const auto& row : base::settings_table()) {
    if (row.name == "scratch_bytes")
      return {static_cast<std::uint64_t>(row.smallest), static_cast<std::uint64_t>(row.largest)};
  }
  throw Error(ErrorCode::internal, "there is no setting scratch_bytes", "report it");
}

void describe_plan(CLI::App& app, PlanOptions& o) {
  add_value(app, "collective", o.collective, parse_collective, kCollectives, "which collective");
  add_number(app, "--np", o.ranks, 1, kMaxRanks, "number of ranks (2)");
  add_value(app, "--bytes", o.bytes, parse_bytes, kSize, "bytes per rank (1M)");
  add_value(app, "--type", o.type, parse_type, kTypes, "element type (f32)");
  add_value(app, "--op", o.op, parse_operator, kOperators, "operator (sum)");
  add_number(app, "--root", o.root, 0, kMaxRanks - 1, "root of broadcast, reduce, gather, scatter (0)");
  app.add_flag_callback(
      "--in-place", [&o] { o.in_place = true; }, "input and output overlap");
  app.add_flag_callback(
      "--steps", [&o] { o.steps = true; }, "print every step of the plan too");
  std::string builders;
  for (auto name : core::builder_names()) builders += (builders.empty() ? "" : ", ") + std::string(name);
  add_value(
      app, "--builder", o.builder,
      [](const std::string& text) -> std::optional<std::string> {
        const auto& names = core::builder_names();
        return std::find(names.begin(), names.end(), text) == names.end() ? std::nullopt
                                                                          : std::optional(text);
      },
      "one of " + builders, "show this builder's plan instead of the one that would run");
  const auto [least, most] = scratch_range();
  add_value(
      app, "--scratch", o.scratch_bytes,
      [least = least, most = most](const std::string& text) {
        auto value = parse_bytes(text);
        return value && *value >= least && *value <= most ? value : std::nullopt;
      },
      fmt::format("a size from {} to {} bytes, as TUGLINE_SCRATCH_BYTES takes", least, most),
      "as if TUGLINE_SCRATCH_BYTES were this");
  auto* cores = add_number(app, "--cores", o.cores, 1, 1 << 20, "cores for all ranks (this machine's)");
  auto* groups = add_number(app, "--groups", o.groups, 1, kMaxRanks,
                            "ranks lie in so many groups (NUMA nodes, say) of neighbours, of equal size (1)");
  add_text(
      app, "--topology", o.topology_file,
      "ranks are placed on the machine of this topology file, each on cores of its own if there are enough")
      ->excludes(cores)
      ->excludes(groups);
  auto* check = add_text(app, "--check", o.check_file, "check the hand-written plan in this JSON file");
  for (auto* other : app.get_options()) {
    if (other != check && other != app.get_help_ptr()) check->excludes(other);
  }
  add_form(app, o.form);
}

void describe_broker(CLI::App& app, BrokerCommandOptions& o) {
  add_text(app, "--job", o.job, "name of the job (this or --socket is required)");
  app.add_flag_callback(
         "--job-scoped", [&o] { o.scope = broker::Scope::job_scoped; }, "")
      ->group("");
  add_text(app, "--socket", o.socket_path, "where to listen (<runtime directory>/<job>/broker.sock)");
  add_form(app, o.form);
}

void validate(const CLI::App& app, const BenchOptions& o) {
  for (const char* size : {"-b", "-e", "-f", "-i"}) {
    if (!o.plan_file.empty() && app.count(size) > 0)
      refuse(size, "a plan says itself how many bytes it moves; leave it out with --plan");
  }
  if (o.end_bytes < o.begin_bytes)
    refuse("-e", fmt::format("last size {} is below first size {}", o.end_bytes, o.begin_bytes));
  if (o.step_factor == 0 && o.step_bytes == 0) refuse("-i", "steps of 0 bytes never end; give -f or -i");
  if (o.ranks && o.root >= *o.ranks)
    refuse("-r", fmt::format("root {} is not below the number of ranks {}", o.root, *o.ranks));
  if (o.rank_kind == RankKind::threads && o.binding != Binding::none)
    refuse("--bind", "only processes are bound; leave it out with --threads");
  constexpr std::uint64_t kMostSizes = 100'000;
  if (o.step_factor == 0 && (o.end_bytes - o.begin_bytes) / o.step_bytes >= kMostSizes)
    refuse("-i",
           fmt::format("steps of {} bytes from {} to {} are more than {} sizes; give a larger -i, or -f",
                       o.step_bytes, o.begin_bytes, o.end_bytes, kMostSizes));
}

void validate(const CLI::App& app, const PlanOptions& o) {
  if (!o.check_file.empty()) return;
  if (app.count("collective") == 0) throw CLI::RequiredError("a collective, or --check FILE,");
  if (o.root >= o.ranks)
    refuse("--root", fmt::format("root {} is not below the number of ranks {}", o.root, o.ranks));
  if (o.groups > o.ranks)
    refuse("--groups", fmt::format("{} groups of {} ranks leave some empty", o.groups, o.ranks));
  if (o.collective == core::Collective::barrier && app.count("--bytes") > 0 && o.bytes > 0)
    refuse("--bytes", "a barrier moves none; leave it out");
  if (o.collective == core::Collective::send_recv && o.ranks < 2)
    refuse("--np", "send_recv takes two ranks at least");
}

/// Options that were given more than once, where the last one counts.
std::vector<std::string> notes_on(const CLI::App& app) {
  std::vector<std::string> notes;
  for (const auto* option : app.get_options()) {
    bool flag = option->get_items_expected_max() == 0;
    if (flag || option->get_multi_option_policy() != CLI::MultiOptionPolicy::TakeLast) continue;
    if (const auto& given = option->results(); given.size() > 1 && !option->get_positional())
      notes.push_back(fmt::format("{} was given {} times: {} counts, the last one",
                                  option->get_name(false, true), given.size(), given.back()));
  }
  return notes;
}

/// The first word that nothing takes; an option before others, which may be its values.
std::string unexpected(const CLI::App& app, const std::string& subcommand) {
  auto words = app.remaining(true);
  auto option =
      std::find_if(words.begin(), words.end(), [](const auto& word) { return word.starts_with('-'); });
  std::string of = subcommand.empty() ? "tugline" : "tugline " + subcommand;
  if (option != words.end()) return fmt::format("{} has no option {}", of, *option);
  return fmt::format("{} does not take the word \"{}\"", of, words.empty() ? "" : words.front());
}

UsageError usage_error(const std::string& what, const std::string& subcommand) {
  std::string command = subcommand.empty() ? "tugline --help" : fmt::format("tugline {} --help", subcommand);
  return UsageError(what, fmt::format("see `{}`", command),
                    {.operation = subcommand.empty() ? "tugline" : "tugline " + subcommand});
}

}  // namespace

Parsed parse(std::span<const std::string> arguments) {
  CLI::App app{std::string(help::kSummary), "tugline"};
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string(help::version()));
  app.footer(std::string(help::kExamples));
  app.get_formatter()->column_width(28);

  RunOptions run;
  BenchOptions bench;
  PlanOptions plan;
  DoctorOptions doctor;
  ConfigOptions config;
  BrokerCommandOptions standing;
  auto add = [&app](const char* name, std::string_view summary, std::string_view footer) {
    auto* sub = app.add_subcommand(name, std::string(summary));
    sub->footer(std::string(footer));
    return sub;
  };
  auto* run_app = add("run", help::kRunSummary, help::kRunExamples);
  describe_run(*run_app, run);
  auto* bench_app = add("bench", help::kBenchSummary, help::kBenchExamples);
  describe_bench(*bench_app, bench);
  auto* plan_app = add("plan", help::kPlanSummary, help::kPlanExamples);
  describe_plan(*plan_app, plan);
  auto* doctor_app = add("doctor", help::kDoctorSummary, help::kDoctorExamples);
  add_number(*doctor_app, "--np", doctor.ranks, 1, kMaxRanks, "ranks that are to run (one per core)");
  doctor_app->add_option("--job", doctor.job, "show the memory and descriptors of this running job instead")
      ->excludes("--np");
  add_form(*doctor_app, doctor.form);
  auto* config_app = add("config", help::kConfigSummary, help::kConfigExamples);
  add_form(*config_app, config.form);
  auto* broker_app = add("broker", help::kBrokerSummary, help::kBrokerExamples);
  describe_broker(*broker_app, standing);

  std::string subcommand;
  auto remember = [&] {
    for (const auto* sub : app.get_subcommands()) subcommand = sub->get_name();
  };
  try {
    auto own = arguments;
    if (!arguments.empty() && arguments.front() == "run")
      own = arguments.first(
          static_cast<std::size_t>(std::find(arguments.begin(), arguments.end(), "--") - arguments.begin()));
    // The library takes arguments last first.
    app.parse(std::vector<std::string>(own.rbegin(), own.rend()));
    remember();
    if (bench_app->parsed()) {
      bool has_end = bench_app->count("--maxbytes") > 0;
      if (!has_end) bench.end_bytes = std::max(bench.end_bytes, bench.begin_bytes);
      validate(*bench_app, bench);
    }
    if (plan_app->parsed()) validate(*plan_app, plan);
    if (broker_app->parsed() && standing.job.empty() && standing.socket_path.empty())
      throw CLI::RequiredError("--job or --socket");
    if (run_app->parsed()) {
      // Without a "--" before it, the first thing that the library does not know is the program.
      run.command = run_app->remaining();
      if (!run.command.empty() && run.command.front().starts_with('-'))
        refuse(run.command.front(), "there is no such option");
      auto tail = arguments.subspan(own.size());
      if (run.command.empty() && !tail.empty()) tail = tail.subspan(1);
      run.command.insert(run.command.end(), tail.begin(), tail.end());
      if (run.command.empty()) throw CLI::RequiredError("a program after --");
    }
  } catch (const CLI::CallForHelp&) {
    return {ShowText{app.help()}, {}};
  } catch (const CLI::CallForAllHelp&) {
    return {ShowText{app.help("", CLI::AppFormatMode::All)}, {}};
  } catch (const CLI::CallForVersion&) {
    return {ShowText{std::string(help::version()) + "\n"}, {}};
  } catch (const CLI::ParseError& error) {
    remember();
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !subcommand.empty())
      throw usage_error(unexpected(app, subcommand), subcommand);
    if (subcommand.empty() && !arguments.empty() && !arguments.front().starts_with('-'))
      throw usage_error(fmt::format("there is no subcommand \"{}\"", arguments.front()), subcommand);
    throw usage_error(error.what(), subcommand);
  }
  // A rank that bench starts gets the words of a command line that has had its notes.
  std::vector<std::string> notes;
  if (!bench.launcher_cores) notes = notes_on(*app.get_subcommands().front());
  if (run_app->parsed()) return {run, notes};
  if (bench_app->parsed()) {
    bench.arguments.assign(arguments.begin(), arguments.end());
    return {bench, notes};
  }
  if (plan_app->parsed()) return {plan, notes};
  if (doctor_app->parsed()) return {doctor, notes};
  if (config_app->parsed()) return {config, notes};
  return {standing, notes};
}

}  // namespace tugline::cli

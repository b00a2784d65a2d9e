// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <limits>

#include "fashion_data.h"
#include "output.h"

namespace train_fashion {
namespace {

constexpr const char* kSeeHelp = "see train_fashion --help";

tugline::ErrorContext command_line() {
  tugline::ErrorContext context;
  context.operation = "command line";
  return context;
}

template <class Number>
bool parse_whole(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

RankAtStep parse_rank_at_step(const std::string& option, const std::string& text) {
  RankAtStep result{};
  const auto at = text.find('@');
  const std::string_view view = text;
  if (at == std::string::npos || !parse_whole(view.substr(0, at), result.rank) || result.rank < 0 ||
      !parse_whole(view.substr(at + 1), result.step)) {
    throw UsageError(fmt::format("{} {} is not RANK@STEP", option, text),
                     fmt::format("give a rank and a step, both from 0: {} 2@100", option));
  }
  return result;
}

constexpr const char* kFooter = R"(Which numbers of ranks compute the same bits:
  N ranks and 1 rank do if the micro-batch is the share of each of the N: with the defaults 4 and 1, with
  --micro-batch BATCH/N any N that divides the batch. So do two runs of equally many ranks, and a run whose ranks
  are killed and its --replay.
  Others do not. With the defaults 2 ranks add the same four gradients in another order, and 3, 5 or more cut the
  batch in other places. At first they differ in rounding (1e-7 of the loss), which training amplifies: by 3 % after
  50 steps between 1 and 3 ranks.
  Equal bits need processors of one kind and plans that add in rank order. Those chosen by default do;
  TUGLINE_PLAN=ring does not.

Examples:
  tugline run -n 4 -- train_fashion
  tugline run -n 4 -- train_fashion --kill 2@150 --json killed.json
  tugline run -n 4 -- train_fashion --replay killed.json --json replayed.json
  train_fashion --ranks 2 --steps 50
  train_fashion --find model/0        (joins the job of TUGLINE_JOB or TUGLINE_SOCKET_PATH)
)";

}  // namespace

UsageError::UsageError(std::string what_failed, std::string what_to_do, tugline::SourceLocation location)
    : Error(tugline::ErrorCode::invalid_argument, std::move(what_failed), std::move(what_to_do),
            command_line(), location) {}

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  options.data = kDefaultDataFolder;
  std::uint64_t steps = 0;
  std::int64_t seed = static_cast<std::int64_t>(options.seed);  // signed: a negative one is to be refused
  std::vector<std::string> kills;
  std::vector<std::string> losses;
  bool die = false;
  CLI::App app(
      "Trains a convolutional network of a million parameters on Fashion-MNIST, one process per rank.",
      "train_fashion");
  app.footer(kFooter);
  app.add_option("--ranks", options.ranks, "Start this many ranks with \"tugline run\"")
      ->check(CLI::Range(1, 256));
  app.add_option("--epochs", options.epochs, "Passes over the 60,000 training images")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  auto* steps_option = app.add_option("--steps", steps, "Stop after this many steps")
                           ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{100'000'000}));
  app.add_option("--batch", options.batch, "Images of a step, over all ranks")
      ->check(CLI::Range(1, 60'000))
      ->capture_default_str();
  app.add_option("--micro-batch", options.micro_batch,
                 "Images that a rank computes at once; it adds up the gradients of its micro-batches")
      ->check(CLI::Range(1, 60'000))
      ->capture_default_str();
  app.add_option("--learning-rate", options.learning_rate, "Peak of the learning rate")
      ->check(CLI::Range(1e-6, 10.0))
      ->check([](const std::string& text) {  // every comparison with it is false, those of Range, too
        return text.find_first_of("nN") == std::string::npos ? std::string() : text + " is not a number";
      })
      ->capture_default_str();
  app.add_option("--seed", seed, "Of the first weights and the order of images")
      ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  app.add_option("--device", options.device, "Where to compute: auto or host")->capture_default_str();
  app.add_option("--data", options.data, "Folder of the data set")->capture_default_str();
  app.add_option("--model", options.model, "Rank r publishes its parameters as MODEL/r")
      ->capture_default_str();
  app.add_option("--kill", kills, "RANK@STEP: that rank gets SIGKILL in the middle of that step");
  app.add_option("--lose", losses, "RANK@STEP: that rank leaves the job before that step");
  app.add_option("--replay", options.replay, "Repeat the membership changes of a run's --json file");
  app.add_option("--json", options.json, "Write everything measured to this file");
  app.add_option("--progress", options.progress_steps, "Steps between two lines of progress")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{100'000'000}))
      ->capture_default_str();
  app.add_flag("--batch-trace", options.batch_trace, "Every rank prints its share of every batch");
  app.add_flag("--die-at-end", die, "All ranks get SIGKILL after the report, instead of leaving the job");
  app.add_option("--find", options.find, "Do not train: find these parameters by name and test them");
  for (auto* option : app.get_options()) {
    if (option->get_items_expected_max() == 0) continue;  // a flag
    option->check([](const std::string& text) {
      return text.empty() ? "its value is empty; give one, or leave the option out" : std::string();
    });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    flush_output();
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what(), kSeeHelp);
  }
  if (steps_option->count() > 0) options.steps = steps;
  options.seed = static_cast<std::uint64_t>(seed);
  if (die) options.ending = Ending::killed;
  for (const auto& text : kills) options.kills.push_back(parse_rank_at_step("--kill", text));
  for (const auto& text : losses) options.losses.push_back(parse_rank_at_step("--lose", text));
  if (options.device != "auto" && options.device != "host") {
    throw UsageError(fmt::format("--device {}: this example computes on the host", options.device),
                     "give --device host, or leave it out");
  }
  if (!options.replay.empty() && (!options.kills.empty() || !options.losses.empty())) {
    throw UsageError("--replay together with --kill or --lose", "leave one of them out");
  }
  return options;
}

void check_against_job(const Options& options, int size, std::uint64_t steps) {
  const auto check = [&](const char* option, const std::vector<RankAtStep>& list) {
    for (const auto& [rank, step] : list) {
      if (rank >= size || step >= steps) {
        throw UsageError(
            fmt::format("{} {}@{}, but there are {} ranks and {} steps", option, rank, step, size, steps),
            fmt::format("give a rank below {} and a step below {}", size, steps));
      }
    }
  };
  check("--kill", options.kills);
  check(options.replay.empty() ? "--lose" : "--replay", options.losses);
  if (options.ranks != 0 && options.ranks != size) {
    throw UsageError(fmt::format("--ranks {}, but the job has {}", options.ranks, size),
                     "leave --ranks out: the launcher decides");
  }
}

}  // namespace train_fashion

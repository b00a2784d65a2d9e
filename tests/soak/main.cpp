// SPDX-License-Identifier: Apache-2.0
// soak_ranks: random operations for as long as asked, every result compared, and nothing that grows. Ranks
// are threads of this process (--threads N), or it is one rank of a launcher's.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <string_view>
#include <thread>

#include "base/random.h"
#include "soak/rank.h"

namespace tugline::soak {
namespace {

constexpr const char* kUsage =
    "usage: soak_ranks [--threads RANKS] [--seconds N | --rounds N] [--seed N] [--first-round N]\n"
    "                  [--lanes N] [--steps N] [--most-bytes N] [--settle SECONDS]\n"
    "                  [--fault none|element|descriptor|heap|mapping|thread|buffer]\n";
constexpr std::string_view kFaults[] = {"none",    "element", "descriptor", "heap",
                                        "mapping", "thread",  "buffer"};

std::uint64_t number_of(std::string_view name, std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    throw std::invalid_argument(fmt::format("{}: \"{}\" is no number", name, text));
  return number;
}

Fault fault_of(std::string_view text) {
  for (std::size_t i = 0; i < std::size(kFaults); ++i)
    if (kFaults[i] == text) return static_cast<Fault>(i);
  throw std::invalid_argument(fmt::format("--fault: \"{}\" is not known", text));
}

Options options_of(int argc, char** argv) {
  Options options;
  if (argc % 2 == 0) throw std::invalid_argument("every option has a value");
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::string_view text = argv[i + 1];
    if (name == "--fault") {
      options.fault = fault_of(text);
      continue;
    }
    const auto number = number_of(name, text);
    if (name == "--threads")
      options.threads = static_cast<int>(number);
    else if (name == "--seconds")
      options.time = std::chrono::seconds(number);
    else if (name == "--settle")
      options.settle = std::chrono::seconds(number);
    else if (name == "--rounds")
      options.rounds = number;
    else if (name == "--seed")
      options.seed = number;
    else if (name == "--first-round")
      options.first_round = number;
    else if (name == "--lanes")
      options.lanes = static_cast<int>(number);
    else if (name == "--steps")
      options.steps = static_cast<int>(number);
    else if (name == "--most-bytes")
      options.most_bytes = number;
    else
      throw std::invalid_argument(fmt::format("{} is no option", name));
  }
  return options;
}

void run_threads(const Options& options) {
  const std::string name = "soak-" + base::random_hex(8);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.threads; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        auto job = Job::join({.rank = rank, .size = options.threads, .job = name, .socket_path = ""});
        Rank(job, options).run();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "soak: rank %d: %s\n", rank, error.what());
        std::_Exit(1);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace tugline::soak

int main(int argc, char** argv) {
  using namespace tugline::soak;
  Options options;
  try {
    options = options_of(argc, argv);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "soak_ranks: %s\n%s", error.what(), kUsage);
    return 2;
  }
  try {
    if (options.threads > 0) {
      run_threads(options);
    } else {
      auto job = tugline::Job::join();
      Rank(job, options).run();
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "soak_ranks: %s\n", error.what());
    return 1;
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "soak/rank.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace tugline::soak {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

/// Rounds in which pools, plans and tables find their size.
constexpr std::uint64_t kWarmUp = 4;

constexpr seconds kReportEvery{10};
constexpr std::size_t kNamedElements = 3000;

double seconds_since(steady_clock::time_point begin) {
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}

std::uint32_t named_element(int rank, std::uint64_t version, std::size_t index) noexcept {
  return static_cast<std::uint32_t>(version * 1000003 + static_cast<std::uint64_t>(rank) * 101 + index);
}

}  // namespace

Rank::Rank(Job& job, const Options& options)
    : job_(job),
      options_(options),
      world_(job.communicator()),
      round_(options.first_round),
      growth_(kWarmUp),
      begin_(steady_clock::now()),
      next_report_(begin_ + kReportEvery) {}

std::string Rank::again() const {
  std::string command = options_.threads > 0 ? fmt::format("soak_ranks --threads {}", options_.threads)
                                             : fmt::format("tugline run -n {} -- soak_ranks", job_.size());
  return fmt::format("{} --lanes {} --steps {} --most-bytes {} --seed {} --first-round {} --rounds 1",
                     command, options_.lanes, options_.steps, options_.most_bytes, options_.seed, round_);
}

// Other threads of this rank may wait for ranks that wait for this one: nothing is unwound.
void Rank::fail(const std::string& where, std::string_view what) const {
  static std::mutex first;
  first.lock();
  std::fputs(
      fmt::format("soak: FAILED at rank {} in {}: {}\nsoak: again: {}\n", job_.rank(), where, what, again())
          .c_str(),
      stderr);
  std::_Exit(1);
}

void Rank::run() try {
  for (;; ++round_) {
    lanes();
    named_buffers();
    put_in_fault();
    settle();
    const auto outcome = world_.agree();
    if (!outcome.committed()) throw Wrong("the world's agreement is not committed");
    const Next next = decide_next();
    if (next == Next::end) break;
    if (next == Next::report) report("soak", "; " + growth_.summary());
  }
  if (const auto grown = growth_.trend(); !grown.empty()) throw Wrong("more and more: " + grown);
  report("soak: PASS", "; " + growth_.summary());
  world_.barrier();
} catch (const std::exception& error) {
  fail(fmt::format("round {} of seed {}", round_, options_.seed), error.what());
}

void Rank::lanes() {
  std::vector<Communicator> communicators;
  for (int number = 0; number < options_.lanes; ++number)
    communicators.push_back(world_.split(0, job_.rank()));
  std::vector<std::uint64_t> operations(communicators.size());
  std::vector<std::thread> threads;
  for (std::size_t number = 0; number < communicators.size(); ++number) {
    threads.emplace_back([&, number] {
      LaneSettings settings{.seed = options_.seed,
                            .round = round_,
                            .number = static_cast<int>(number),
                            .steps = options_.steps,
                            .most_bytes = options_.most_bytes,
                            .spoil = options_.fault == Fault::element && job_.rank() == 0};
      Lane lane(job_, communicators[number], settings);
      try {
        lane.run();
      } catch (const std::exception& error) {
        fail(lane.where(), error.what());
      }
      operations[number] = lane.operations();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto number : operations) operations_ += number;
}

// Every rank writes one and reads all.
void Rank::named_buffers() {
  const auto open = [&](int rank) {
    return job_.named_buffer<std::uint32_t>(fmt::format("soak-{}", rank), kNamedElements,
                                            {.copies = 1 + rank % 2});
  };
  {
    auto own = open(job_.rank());
    const auto version = own.version() + 1;
    const auto elements = own.next();
    for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = named_element(job_.rank(), version, i);
    own.publish(version);
  }
  world_.barrier();
  for (int rank = 0; rank < job_.size(); ++rank) {
    const auto read = open(rank);
    const auto elements = read.current();
    for (std::size_t i = 0; i < elements.size(); ++i)
      if (elements[i] != named_element(rank, read.version(), i))
        throw Wrong(fmt::format("version {} of the named buffer of rank {} is wrong at element {}",
                                read.version(), rank, i));
  }
  world_.barrier();
}

void Rank::put_in_fault() {
  if (job_.rank() != 0) return;
  switch (options_.fault) {
    case Fault::none:
    case Fault::element:
      return;
    case Fault::descriptor:
      if (::open("/dev/null", O_RDONLY | O_CLOEXEC) < 0) throw Wrong("/dev/null cannot be opened");
      return;
    case Fault::heap:
      lost_.push_back(std::make_unique<std::byte[]>(64));
      return;
    case Fault::mapping:
      if (::mmap(nullptr, 4096, round_ % 2 == 0 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                 0) == MAP_FAILED)
        throw Wrong("a page cannot be mapped");
      return;
    case Fault::thread:
      std::thread([] {
        for (;;) ::pause();
      }).detach();
      return;
    case Fault::buffer:
      kept_.emplace_back(MemoryKind::library, 64, job_, job_.device().default_stream());
      return;
  }
}

// All that was freed has been given up by everybody, the broker included, when each rank holds no more than
// after the rounds before. What peers have mapped of it goes with the next call that may reach buffers.
void Rank::settle() {
  job_.pool().trim_to(0);
  enum Word : std::uint32_t { settled, unsettled, out_of_time };
  const auto deadline = steady_clock::now() + options_.settle;
  const bool counts_process = options_.threads == 0 || job_.rank() == 0;
  std::vector<float> values(16384);
  for (;;) {
    world_.barrier();
    world_.all_reduce(values, ReduceOp::sum);
    std::string more;
    Census census;
    if (counts_process) {
      census = take_census(job_.rank() == 0 ? job_.name() : "");
      more = growth_.more_than_ever(census);
    }
    std::uint32_t word = more.empty() ? settled : steady_clock::now() < deadline ? unsettled : out_of_time;
    world_.all_reduce(std::span(&word, 1), ReduceOp::max);
    if (word == settled) {
      if (counts_process) growth_.record(census);
      return;
    }
    if (word == out_of_time && !more.empty()) throw Wrong("something is left of the round: " + more);
    ::sched_yield();
  }
}

// Rank 0's clock decides for all.
Rank::Next Rank::decide_next() {
  const auto now = steady_clock::now();
  const bool more = options_.rounds != 0 ? round_ + 1 < options_.first_round + options_.rounds
                                         : now < begin_ + options_.time;
  auto next = Next::go_on;
  if (!more) {
    next = Next::end;
  } else if (now >= next_report_) {
    next = Next::report;
    next_report_ = now + kReportEvery;
  }
  auto word = static_cast<std::uint32_t>(next);
  world_.broadcast(std::span(&word, 1), 0);
  return static_cast<Next>(word);
}

void Rank::report(std::string_view begin, const std::string& end) {
  std::uint64_t operations = operations_;
  world_.all_reduce(std::span(&operations, 1), ReduceOp::sum);
  if (job_.rank() != 0) return;
  const auto text =
      fmt::format("{}: {} {}, {} lanes each, seed {}, rounds {} to {}, {} operations, {:.0f} s{}\n", begin,
                  job_.size(), options_.threads > 0 ? "threads" : "processes", options_.lanes, options_.seed,
                  options_.first_round, round_, operations, seconds_since(begin_), end);
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
    throw Wrong("standard output cannot be written");
}

}  // namespace tugline::soak

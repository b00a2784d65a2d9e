// SPDX-License-Identifier: Apache-2.0
// One rank of the soak: rounds of lanes in threads of their own, and between them a census that must not
// grow.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "soak/census.h"
#include "soak/lane.h"
#include "tugline/job.h"

namespace tugline::soak {

/// A fault put in on purpose, once in every round, to see that it is found.
enum class Fault : std::uint8_t { none, element, descriptor, heap, mapping, thread, buffer };

struct Options {
  int threads = 0;  ///< ranks as threads; 0: this process is one rank
  int lanes = 2;
  int steps = 40;
  std::size_t most_bytes = std::size_t{2} << 20;
  std::uint64_t seed = 1;
  std::uint64_t first_round = 0;
  std::uint64_t rounds = 0;  ///< 0: until the time is over
  std::chrono::seconds time{10};
  std::chrono::seconds settle{30};  ///< the broker hears of what was freed when it comes to it
  Fault fault = Fault::none;
};

class Rank {
 public:
  Rank(Job& job, const Options& options);
  /// Ends by itself. Ends the process when something is wrong, with what, where, and how to repeat it.
  void run();

 private:
  enum class Next : std::uint8_t { end, go_on, report };
  void lanes();
  void named_buffers();
  void put_in_fault();
  void settle();
  Next decide_next();
  void report(std::string_view begin, const std::string& end);
  std::string again() const;
  [[noreturn]] void fail(const std::string& where, std::string_view what) const;

  Job& job_;
  Options options_;
  Communicator world_;
  std::uint64_t round_;
  Growth growth_;
  std::uint64_t operations_ = 0;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point next_report_;
  // What a fault keeps.
  std::vector<std::unique_ptr<std::byte[]>> lost_;
  std::vector<Memory> kept_;
};

}  // namespace tugline::soak

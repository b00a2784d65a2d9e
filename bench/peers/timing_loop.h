// SPDX-License-Identifier: Apache-2.0
// The timing loop of `make bench-peers`, the same for tugline and its rivals.
//   - Every rank has its own input, another one before every operation. Up to 64 bytes are written inside the
//   timed
//     part, many operations to a time stamp; longer inputs outside of it, behind a barrier, one operation a
//     stamp.
//   - Results are checked outside the timed part: every element before and after the stamps, a few after
//   each.
//   - A stamp counts for its slowest rank; the figure is the median over the stamps.
//   - How many operations are made follows from the time that is given: slow libraries make fewer.
// A rank that sees a wrong result throws, one that hangs is ended by SIGALRM; there is no figure then.
#pragma once

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace peers {

enum class Collective { barrier, all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, send_recv };
inline constexpr std::array<std::string_view, 7> kNames{
    "barrier", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv"};

struct Case {
  Collective collective = Collective::barrier;
  std::size_t bytes = 0;  ///< of the larger buffer of a rank
};

/// Elements of one call, the same on all ranks. `count` is what most interfaces take: of a block where there
/// are blocks.
struct Shape {
  Collective collective = Collective::barrier;
  std::size_t count = 0;
  std::size_t send_count = 0;
  std::size_t recv_count = 0;
};

/// Where a library reads and writes; the same address where it works in place.
struct Places {
  float* input = nullptr;
  float* output = nullptr;
};

/// What every program of this folder is told: BUDGET_MS LIMIT_S CORE,CORE... COLLECTIVE:BYTES...
struct Order {
  double budget_ns = 0;  ///< time of the stamps of one case
  unsigned limit_s = 0;  ///< for the whole program
  std::vector<int> cores;
  std::vector<Case> cases;
};

[[noreturn]] inline void fail(const std::string& what, const std::string& where, const std::string& remedy) {
  throw std::runtime_error(what + "\n  where: " + where + "\n  do: " + remedy);
}

inline Case case_of(const std::string& word) {
  auto colon = word.find(':');
  auto name = std::find(kNames.begin(), kNames.end(), word.substr(0, colon));
  if (colon == std::string::npos || name == kNames.end())
    fail("\"" + word + "\" is no COLLECTIVE:BYTES", "the command line", "give, for example, all_reduce:8");
  return {static_cast<Collective>(name - kNames.begin()),
          std::strtoull(word.c_str() + colon + 1, nullptr, 10)};
}

/// `words` are the arguments behind the program's own.
inline Order order_of(const std::vector<std::string>& words) {
  if (words.size() < 4)
    fail("too few arguments", "the command line", "give BUDGET_MS LIMIT_S CORE,CORE... COLLECTIVE:BYTES...");
  Order order{.budget_ns = std::atof(words[0].c_str()) * 1e6,
              .limit_s = static_cast<unsigned>(std::atoi(words[1].c_str()))};
  for (const char* at = words[2].c_str(); *at != '\0';) {
    char* end = nullptr;
    order.cores.push_back(static_cast<int>(std::strtol(at, &end, 10)));
    at = *end == ',' ? end + 1 : end;
    if (end == words[2].c_str())
      fail("\"" + words[2] + "\" is no list of cores", "the command line", "give 0,1");
  }
  for (std::size_t i = 3; i < words.size(); ++i) order.cases.push_back(case_of(words[i]));
  return order;
}

/// The rank as the launcher says it in an environment variable.
inline int rank_from(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr)
    fail(std::string(variable) + " is not set", "the environment", "start it by its launcher");
  return std::atoi(text);
}

/// Binds this process to its core and sets its limit. Comes before the library is initialised, which may look
/// at the binding and starts threads that inherit it.
inline void begin(const Order& order, int rank) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(order.cores[static_cast<std::size_t>(rank) % order.cores.size()]), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0)
    fail(std::string("sched_setaffinity: ") + std::strerror(errno), "rank " + std::to_string(rank),
         "give cores that this process may use");
  alarm(order.limit_s);
}

inline Shape shape_of(const Case& wanted, int ranks) {
  std::size_t elements = wanted.bytes / sizeof(float);
  std::size_t n = static_cast<std::size_t>(ranks);
  switch (wanted.collective) {
    case Collective::barrier:
      return {};
    case Collective::all_gather:
      return {wanted.collective, elements / n, elements / n, elements / n * n};
    case Collective::reduce_scatter:
      return {wanted.collective, elements / n, elements / n * n, elements / n};
    case Collective::all_to_all:
      return {wanted.collective, elements / n, elements / n * n, elements / n * n};
    default:
      return {wanted.collective, elements, elements, elements};
  }
}

/// What element `i` of this rank's output must be, from value(rank, index) of the inputs.
template <class Value>
float expected(const Shape& shape, int rank, int ranks, std::size_t i, Value value) {
  std::size_t own = static_cast<std::size_t>(rank) * shape.count;
  switch (shape.collective) {
    case Collective::all_gather:
      return value(static_cast<int>(i / shape.count), i % shape.count);
    case Collective::all_to_all:
      return value(static_cast<int>(i / shape.count), own + i % shape.count);
    case Collective::broadcast:
      return value(0, i);
    case Collective::send_recv:
      return value((rank + ranks - 1) % ranks, i);
    default: {
      std::size_t index = shape.collective == Collective::reduce_scatter ? own + i : i;
      float sum = 0;
      for (int r = 0; r < ranks; ++r) sum += value(r, index);
      return sum;
    }
  }
}

inline std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

/// `Library` has rank(), size(), barrier(), max(values) over all ranks in place, Places prepare(shape), which
/// makes the buffers of a case, and operate(), the call that is timed.
template <class Library>
class Loop {
 public:
  Loop(Library& library, const Order& order) : library_(library), order_(order) {}

  /// Microseconds of one operation.
  double measure(const Case& wanted) {
    case_ = wanted;
    shape_ = shape_of(wanted, library_.size());
    if (wanted.collective != Collective::barrier && shape_.count == 0)
      fail(name() + " holds no element per rank", where(), "give at least 4 bytes per rank");
    places_ = library_.prepare(shape_);
    for (std::size_t k = 0; k < short_inputs_.size(); ++k) short_inputs_[k].fill(plain(k, library_.rank()));
    verify();
    std::uint64_t operation_ns = warm_up();
    int batch = is_short()
                    ? static_cast<int>(std::clamp<std::uint64_t>(kLongestBatchNs / operation_ns, 1, kBatch))
                    : 1;
    auto stamps =
        time(batch, static_cast<int>(std::clamp(order_.budget_ns / static_cast<double>(operation_ns) / batch,
                                                kFewest, kMost)));
    verify();
    library_.max(stamps);
    auto middle = stamps.begin() + static_cast<std::ptrdiff_t>(stamps.size() / 2);
    std::nth_element(stamps.begin(), middle, stamps.end());
    return static_cast<double>(*middle) * 1e-3 / batch;
  }

 private:
  static constexpr std::size_t kShortBytes = 64;
  static constexpr int kBatch = 100;
  static constexpr std::uint64_t kLongestBatchNs = 20'000'000;
  static constexpr double kFewest = 11;
  static constexpr double kMost = 5000;
  // A prime above any number of ranks whose sums would otherwise be equal from one operation to the next.
  static constexpr std::size_t kPlainValues = 67;
  static_assert(kPlainValues * 1024 < (1U << 24), "sums over 1024 ranks are exact in float");

  /// All of rank r's input of operation k.
  static float plain(std::size_t k, int r) {
    return static_cast<float>(1 + (k + static_cast<std::size_t>(r)) % kPlainValues);
  }
  /// An element of the input of a verified operation.
  static float patterned(int r, std::size_t i) {
    return static_cast<float>((i * 7 + static_cast<std::size_t>(r) * 13) % 4093);
  }

  std::string name() const {
    return std::string(kNames[static_cast<std::size_t>(case_.collective)]) + " of " +
           std::to_string(case_.bytes) + " bytes";
  }
  std::string where() const {
    return name() + ", rank " + std::to_string(library_.rank()) + " of " + std::to_string(library_.size());
  }
  bool is_short() const { return shape_.send_count * sizeof(float) <= kShortBytes; }
  bool has_input() const { return shape_.collective != Collective::broadcast || library_.rank() == 0; }

  template <class Value>
  void check(std::size_t i, Value value) {
    float wanted = expected(shape_, library_.rank(), library_.size(), i, value);
    if (places_.output[i] != wanted)
      fail("element " + std::to_string(i) + " is " + std::to_string(places_.output[i]) + ", not " +
               std::to_string(wanted),
           where(), "trust no figure of this library: its result is wrong");
  }

  void verify() {
    if (places_.output == nullptr) return;
    std::fill_n(places_.output, shape_.recv_count, std::numeric_limits<float>::quiet_NaN());
    if (has_input())
      for (std::size_t i = 0; i < shape_.send_count; ++i) places_.input[i] = patterned(library_.rank(), i);
    library_.barrier();
    library_.operate();
    for (std::size_t i = 0; i < shape_.recv_count; ++i) check(i, patterned);
  }

  void rewrite() {
    ++written_;
    if (!has_input() || places_.input == nullptr) return;
    if (is_short()) {
      std::memcpy(places_.input, short_inputs_[written_ % kPlainValues].data(),
                  shape_.send_count * sizeof(float));
    } else {
      std::fill_n(places_.input, shape_.send_count, plain(written_, library_.rank()));
    }
  }

  /// Looks at a few elements of the last operation, so as not to bring all of the output into the cache.
  void sample() {
    if (places_.output == nullptr) return;
    for (std::size_t i :
         {std::size_t{0}, shape_.recv_count / 2, shape_.recv_count - 1, written_ * 7919 % shape_.recv_count})
      check(i, [this](int r, std::size_t) { return plain(written_, r); });
  }

  /// Runs for a tenth of the budget. Nanoseconds of one operation and its input, equal on all ranks.
  std::uint64_t warm_up() {
    for (std::uint64_t operations = 1;; operations *= 2) {
      library_.barrier();
      std::uint64_t start = monotonic_ns();
      for (std::uint64_t i = 0; i < operations; ++i) {
        rewrite();
        library_.operate();
      }
      std::vector<std::uint64_t> elapsed{monotonic_ns() - start};
      library_.max(elapsed);
      if (static_cast<double>(elapsed[0]) >= order_.budget_ns / 10)
        return std::max<std::uint64_t>(elapsed[0] / operations, 1);
    }
  }

  std::vector<std::uint64_t> time(int batch, int number) {
    std::vector<std::uint64_t> stamps;
    stamps.reserve(static_cast<std::size_t>(number));
    for (int stamp = 0; stamp < number; ++stamp) {
      rewrite();
      library_.barrier();
      std::uint64_t start = monotonic_ns();
      library_.operate();
      for (int i = 1; i < batch; ++i) {
        rewrite();
        library_.operate();
      }
      stamps.push_back(monotonic_ns() - start);
      sample();
    }
    return stamps;
  }

  Library& library_;
  const Order& order_;
  Case case_;
  Shape shape_;
  Places places_;
  std::array<std::array<float, kShortBytes / sizeof(float)>, kPlainValues> short_inputs_{};
  std::size_t written_ = 0;
};

/// Private buffers of one case, as malloc gives them, resident.
class PrivateBuffers {
 public:
  Places make(std::size_t input, std::size_t output) {
    input_ = block(input);
    output_ = block(output);
    return {input_.get(), output_.get()};
  }

 private:
  struct Free {
    void operator()(float* block) const { std::free(block); }
  };
  using Block = std::unique_ptr<float, Free>;

  static Block block(std::size_t count) {
    if (count == 0) return nullptr;
    Block block(static_cast<float*>(std::malloc(count * sizeof(float))));
    if (!block) throw std::bad_alloc();
    std::memset(block.get(), 0x5A, count * sizeof(float));
    return block;
  }

  Block input_;
  Block output_;
};

/// All cases; rank 0 prints a line for each.
template <class Library>
void run(Library& library, const Order& order, const std::string& version) {
  Loop<Library> loop(library, order);
  if (library.rank() == 0) std::printf("peers: version %s\n", version.c_str());
  for (const auto& wanted : order.cases) {
    double us = loop.measure(wanted);
    if (library.rank() != 0) continue;
    std::printf("peers: %s %zu %.4f\n", kNames[static_cast<std::size_t>(wanted.collective)].data(),
                wanted.bytes, us);
    std::fflush(stdout);
  }
}

}  // namespace peers

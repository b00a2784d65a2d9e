// SPDX-License-Identifier: Apache-2.0
#include "bench/measure.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>

#include "base/clock.h"
#include "bench/call.h"
#include "bench/pattern.h"
#include "bench/sweep.h"
#include "comm/forced_plan.h"
#include "core/plan/print.h"
#include "plan_file.h"
#include "tugline/error.h"
#include "usage.h"

namespace tugline::cli {
namespace {

/// Bytes behind every output that must stay as they are.
constexpr std::size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xA5};

/// A buffer of the kind and alignment that the bench asks for.
class Area {
 public:
  Area(Job& job, const BenchOptions& options, std::uint64_t bytes)
      : offset_(options.offset_bytes), bytes_(whole_pages(offset_ + bytes + kGuardBytes)) {
    if (options.buffers == BufferKind::library) {
      owner_.emplace(job.allocate<std::uint8_t>(bytes_));
      begin_ = reinterpret_cast<std::byte*>(owner_->data());
    } else {
      device_ = &job.device();
      begin_ = static_cast<std::byte*>(device_->allocate(bytes_));
    }
    std::memset(begin_, 0, bytes_);
    if (options.buffers == BufferKind::registered) registered_ = job.register_memory(begin_, bytes_);
  }
  ~Area() {
    registered_.deregister();
    if (device_ != nullptr) device_->deallocate(begin_, bytes_);
  }
  Area(const Area&) = delete;
  Area& operator=(const Area&) = delete;
  std::byte* data() const noexcept { return begin_ + offset_; }

 private:
  static std::size_t whole_pages(std::size_t bytes) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return (bytes + page - 1) / page * page;
  }

  std::size_t offset_;
  std::size_t bytes_;
  std::byte* begin_ = nullptr;
  Device* device_ = nullptr;
  std::optional<Buffer<std::uint8_t>> owner_;
  RegisteredMemory registered_;
};

/// Up to here operations are timed many at a time, the writing of their inputs included.
constexpr std::uint64_t kShortBytes = 64;

enum class Place : std::uint8_t { out_of_place, in_place };

std::uint64_t largest(const BenchOptions& options, const std::optional<core::Plan>& plan) {
  if (!plan) return options.end_bytes;
  std::uint64_t most = 0;
  for (std::int32_t rank = 0; rank < plan->ranks; ++rank)
    most = std::max({most, plan->input_bytes(rank), plan->output_bytes(rank)});
  return most;
}

class Bench {
 public:
  Bench(const BenchOptions& options, Job& job, const std::optional<core::Plan>& plan)
      : options_(options),
        world_(job.communicator()),
        stream_(job.device().stream()),
        first_(job, options, largest(options, plan)),
        second_(job, options, largest(options, plan)) {
    if (!plan) return;
    form_ = plan->in_place ? Place::in_place : Place::out_of_place;
    comm::force_plan(world_, *plan,
                     comm::PlanTrust::unchecked);  // plan_of() has proved it, if that was wanted
  }

  Line run(std::uint64_t bytes, DataType type, ReduceOp op) {
    line_ = {.type = type, .op = op};
    shape_ = shape_of(options_.collective, bytes, size_of(type), world_.size());
    line_.bytes = shape_.bytes;
    line_.count = shape_.count;
    line_.batch = options_.graph_replays > 0 ? options_.iterations : batch_of(options_, shape_.bytes);
    for (std::size_t i = 0; i < short_inputs_.size(); ++i)
      fill_plain(type, short_inputs_[i].data(), kShortBytes / size_of(type), i);
    if (form_ != Place::in_place) line_.out_of_place = run(Place::out_of_place);
    if (form_ != Place::out_of_place && has_in_place(options_.collective))
      line_.in_place = run(Place::in_place);
    return line_;
  }

 private:
  Measurement run(Place place) {
    prepare(place);
    std::uint64_t wrong = 0;
    for (int check = 0; check < options_.checks; ++check) wrong += check_once(place);
    auto stamps = options_.graph_replays > 0 ? time_graph() : time_calls();
    return combine(stamps, wrong);
  }

  void prepare(Place place) {
    std::uint64_t width = size_of(line_.type);
    std::byte* output = second_.data();
    input_ = first_.data();
    if (place == Place::in_place) {
      input_ = output + in_place_send_offset(options_.collective, shape_, world_.rank()) * width;
      output += in_place_recv_offset(options_.collective, shape_, world_.rank()) * width;
    }
    call_ = {.collective = options_.collective,
             .send = input_,
             .recv = output,
             .count = shape_.count,
             .type = line_.type,
             .op = line_.op,
             .root = options_.root,
             .blocks = shape_.blocks};
    if (options_.collective != core::Collective::all_to_all_v) return;
    std::size_t begin = 0;
    for (int peer = 0; peer < world_.size(); ++peer) {
      call_.blocks[static_cast<std::size_t>(peer)] = shape_.between(world_.rank(), peer);
      call_.displacements.push_back(begin);
      begin += call_.blocks[static_cast<std::size_t>(peer)];
    }
  }

  /// The call in the measured form, done when it returns.
  void operate() {
    if (options_.form == CallForm::blocking && options_.graph_replays == 0) {
      issue(world_, call_, {});
    } else if (options_.graph_replays == 0) {
      issue(world_, call_, stream_);
      stream_.sync();
    } else {
      auto graph = capture(1);
      graph.launch(stream_);
      stream_.sync();
    }
  }

  Graph capture(int operations) {
    stream_.begin_capture();
    for (int i = 0; i < operations; ++i) issue(world_, call_, stream_);
    return stream_.end_capture();
  }

  std::uint64_t check_once(Place place) {
    PatternRequest request{.collective = options_.collective,
                           .type = line_.type,
                           .op = line_.op,
                           .ranks = world_.size(),
                           .rank = world_.rank(),
                           .root = options_.root,
                           .shape = shape_,
                           .seed = ++seed_};
    std::size_t width = size_of(line_.type);
    // Whatever an earlier operation left there must not look right.
    std::memset(second_.data(), 0x5A, shape_.bytes);
    fill_input(request, input_);
    std::byte* guard = (place == Place::in_place
                            ? second_.data() + shape_.bytes
                            : call_.recv + received_by(options_.collective, shape_, world_.rank()) * width);
    std::memset(guard, static_cast<int>(kGuard), kGuardBytes);
    operate();
    std::uint64_t wrong = count_wrong(request, call_.recv);
    wrong += static_cast<std::uint64_t>(
        std::count_if(guard, guard + kGuardBytes, [](std::byte byte) { return byte != kGuard; }));
    return wrong;
  }

  /// Another plain value in all of the input; small ones, which are written inside the timed part, by a copy
  /// of at most kShortBytes.
  void rewrite_input(std::uint64_t round) {
    std::uint64_t count = sent_by(options_.collective, shape_, world_.rank());
    std::uint64_t bytes = count * size_of(line_.type);
    if (bytes <= kShortBytes) {
      std::memcpy(input_, short_inputs_[round % short_inputs_.size()].data(), bytes);
    } else {
      fill_plain(line_.type, input_, count, round);
    }
  }

  /// Nanoseconds of every time stamp; the first `warmup` rounds are not kept.
  std::vector<std::uint64_t> time_calls() {
    std::vector<std::uint64_t> stamps;
    stamps.reserve(static_cast<std::size_t>(options_.iterations));
    int rounds = options_.warmup + options_.iterations;
    std::uint64_t written = 0;
    for (int round = 0; round < rounds; ++round) {
      rewrite_input(++written);
      world_.barrier();
      std::uint64_t start = base::monotonic_ns();
      operate();
      for (int i = 1; i < line_.batch; ++i) {
        rewrite_input(++written);
        operate();
      }
      std::uint64_t end = base::monotonic_ns();
      if (round >= options_.warmup) stamps.push_back(end - start);
    }
    return stamps;
  }

  /// As time_calls(), one replay of a graph of `iterations` operations a stamp.
  std::vector<std::uint64_t> time_graph() {
    auto graph = capture(options_.iterations);
    std::vector<std::uint64_t> stamps;
    int rounds = options_.warmup + options_.graph_replays;
    for (int round = 0; round < rounds; ++round) {
      rewrite_input(static_cast<std::uint64_t>(round));
      world_.barrier();
      std::uint64_t start = base::monotonic_ns();
      graph.launch(stream_);
      stream_.sync();
      std::uint64_t end = base::monotonic_ns();
      if (round >= options_.warmup) stamps.push_back(end - start);
    }
    return stamps;
  }

  /// Brings the ranks' numbers together.
  Measurement combine(std::vector<std::uint64_t> stamps, std::uint64_t wrong) {
    std::array<std::uint64_t, 3> sums{std::accumulate(stamps.begin(), stamps.end(), std::uint64_t{0}), wrong,
                                      1};
    world_.all_reduce(std::span<std::uint64_t>(sums), ReduceOp::sum);
    world_.all_reduce(std::span<std::uint64_t>(stamps), ReduceOp::max);
    if (sums[2] != static_cast<std::uint64_t>(world_.size())) {
      throw Error(ErrorCode::internal,
                  fmt::format("a sum of ones over {} ranks gave {}", world_.size(), sums[2]),
                  "report it with the command: results cannot be collected");
    }
    auto operations = static_cast<double>(stamps.size()) * line_.batch;
    double scale = 1e-3 / line_.batch;  // ns of a stamp -> us of an operation
    std::sort(stamps.begin(), stamps.end());
    auto at = [&](double share) {
      auto index = static_cast<std::size_t>(share * static_cast<double>(stamps.size() - 1) + 0.5);
      return static_cast<double>(stamps[index]) * scale;
    };
    Measurement result;
    result.mean_us = static_cast<double>(sums[0]) * 1e-3 / operations / world_.size();
    result.p50_us = at(0.5);
    result.p99_us = at(0.99);
    result.min_us = at(0);
    result.max_us = at(1);
    if (result.mean_us > 0) result.algorithm_gbps = static_cast<double>(shape_.bytes) / result.mean_us * 1e-3;
    result.bus_gbps = result.algorithm_gbps * bus_factor(options_.collective, world_.size());
    if (options_.checks > 0) result.wrong = sums[1];
    return result;
  }

  const BenchOptions& options_;
  Communicator world_;
  Stream stream_;
  Area first_;   // input of out-of-place calls
  Area second_;  // output, and both of in-place calls
  std::array<std::array<std::byte, kShortBytes>, 4> short_inputs_{};
  Line line_;
  Shape shape_;
  Call call_;
  std::byte* input_ = nullptr;
  std::optional<Place> form_;  // none: both
  std::uint64_t seed_ = 0;
};

/// Says which value of the bench does not fit the plan.
[[noreturn]] void refuse(const BenchOptions& options, const core::Plan& plan, const std::string& why,
                         const std::string& remedy) {
  throw UsageError(fmt::format("plan \"{}\" {}", plan.name, why), remedy, {.operation = options.plan_file});
}

/// The types that are so wide, as words for -d.
std::string types_of_width(std::uint64_t bytes) {
  std::string names;
  for (int i = 0; i < kDataTypeCount; ++i) {
    auto type = static_cast<DataType>(i);
    if (size_of(type) == bytes) names += (names.empty() ? "" : ", ") + std::string(name_of(type));
  }
  return names;
}

}  // namespace

std::optional<core::Plan> plan_of(const BenchOptions& options) {
  if (options.plan_file.empty()) return std::nullopt;
  auto plan = read_plan(options.plan_file);
  // Numbers that make no sense are told before they are compared with others.
  require_right(plan, Proof::structure, options.plan_file);
  if (plan.collective != options.collective) {
    refuse(options, plan, fmt::format("is a plan of {}", core::name_of(plan.collective)),
           fmt::format("run `tugline bench {}`", core::name_of(plan.collective)));
  }
  if (options.ranks && plan.ranks != *options.ranks)
    refuse(options, plan, fmt::format("is for {} ranks, not {}", plan.ranks, *options.ranks),
           fmt::format("give --np {}, or leave it out", plan.ranks));
  if (has_root(plan.collective) && plan.root != options.root)
    refuse(options, plan, fmt::format("has root {}, not {}", plan.root, options.root),
           fmt::format("give -r {}", plan.root));
  for (auto type : options.types) {
    if (!has_data(plan.collective) || size_of(type) == plan.element_bytes) continue;
    auto names = types_of_width(plan.element_bytes);
    refuse(
        options, plan,
        fmt::format("has elements of {} bytes, {} has {}", plan.element_bytes, name_of(type), size_of(type)),
        names.empty() ? "no type is so wide: give the plan elements of 1, 2, 4 or 8 bytes"
                      : "give -d " + names);
  }
  for (auto op : options.operators) {
    if (reduces(plan.collective) && (op == ReduceOp::avg) != plan.average)
      refuse(options, plan, plan.average ? "averages" : "does not average",
             plan.average ? "give -o avg" : "give -o sum, prod, min or max");
  }
  if (options.plan_check == CheckedPlan::required) require_right(plan, Proof::whole, options.plan_file);
  return plan;
}

int batch_of(const BenchOptions& options, std::uint64_t bytes) noexcept {
  if (options.batch > 0) return options.batch;
  return bytes <= kShortBytes ? 100 : 1;
}

std::uint64_t measure(const BenchOptions& options, Job& job, const std::optional<core::Plan>& plan,
                      Report* report) {
  Bench bench(options, job, plan);
  auto sizes = plan ? std::vector{largest(options, plan)} : sizes_of(options);
  auto types = has_data(options.collective) ? options.types : std::vector{DataType::u8};
  auto operators = reduces(options.collective) ? options.operators : std::vector{ReduceOp::sum};
  std::uint64_t wrong = 0;
  for (auto type : types) {
    for (auto op : operators) {
      for (auto bytes : sizes) {
        auto line = bench.run(bytes, type, op);
        for (const auto* measurement : {&line.out_of_place, &line.in_place}) {
          if (*measurement) wrong += (*measurement)->wrong.value_or(0);
        }
        if (report != nullptr) report->add(line);
      }
    }
  }
  return wrong;
}

}  // namespace tugline::cli

// SPDX-License-Identifier: Apache-2.0
#include "soak/census.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "doctor/job.h"
#include "soak/heap.h"

namespace tugline::soak {
namespace {

/// Merged two by two when they are as many.
constexpr std::size_t kWindows = 96;

/// What may be more than before: of counts nothing, of amounts a fixed one and, per round, less than one
/// small thing.
struct Rule {
  const char* name;
  std::uint64_t slack = 0;
  double slack_per_round = 0;
  bool is_count() const noexcept { return slack == 0; }
};
// Caches of allocators and, under sanitizers, shadow memory; a leak of small things shows in the counts
// before.
constexpr std::uint64_t kResidentSlack = std::uint64_t{kSanitized ? 512 : 64} << 20;
constexpr std::uint64_t kMappingsSlack = kSanitized ? 64 : 8;
constexpr std::array<Rule, Census::kNames> kRules{{{"descriptors"},
                                                   {"threads"},
                                                   {"shared mappings"},
                                                   {"mappings", kMappingsSlack},
                                                   {"heap bytes", 4096, 24},
                                                   {"resident bytes", kResidentSlack},
                                                   {"members"},
                                                   {"segments at the broker"},
                                                   {"bytes at the broker"},
                                                   {"references at the broker"},
                                                   {"imported bytes"},
                                                   {"descriptors of the broker"},
                                                   {"resident bytes of the broker", kResidentSlack}}};

void take_least(Census& into, const Census& other) {
  for (std::size_t i = 0; i < Census::kNames; ++i) into.values[i] = std::min(into.values[i], other.values[i]);
}

Census least_of(const std::vector<Census>& all, std::size_t from, std::size_t to) {
  Census least = all[from];
  for (std::size_t i = from; i < to; ++i) take_least(least, all[i]);
  return least;
}

std::uint64_t entries(const char* directory) {
  const std::filesystem::directory_iterator all(directory);
  return static_cast<std::uint64_t>(std::distance(begin(all), end(all)));
}

/// Private memory only: what is shared is counted at the broker, and its pages become resident one by one.
std::uint64_t resident_bytes(const std::string& process) {
  std::ifstream status("/proc/" + process + "/status");
  constexpr std::string_view kRow = "RssAnon:";
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(kRow)) return std::strtoull(line.c_str() + kRow.size(), nullptr, 10) << 10;
  return 0;
}

struct Mappings {
  std::uint64_t all = 0;
  std::uint64_t shared = 0;
};

Mappings mappings() {
  Mappings counted;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line); ++counted.all)
    counted.shared += line.find("/memfd:") != std::string::npos ? 1 : 0;
  return counted;
}

void look_at_broker(Census& census, const std::string& job) {
  const auto account = cli::look_at_job(job).account;
  auto& values = census.values;
  for (const auto& member : account.members) {
    values[Census::references] += member.usage.member_references;
    values[Census::imported_bytes] += member.usage.imported_bytes;
  }
  values[Census::members] = account.members.size();
  values[Census::segments] = account.left.job_segments;
  values[Census::segment_bytes] = account.left.job_bytes;
  values[Census::broker_descriptors] = account.left.broker_descriptors;
  values[Census::broker_resident_bytes] = resident_bytes(std::to_string(account.left.broker_pid));
}

}  // namespace

Census take_census(const std::string& broker_of_job) {
  Census census;
  trim_heap();
  auto& values = census.values;
  values[Census::heap_bytes] = heap_bytes();
  const auto mapped = mappings();
  values[Census::descriptors] = entries("/proc/self/fd");
  values[Census::threads] = entries("/proc/self/task");
  values[Census::shared_mappings] = mapped.shared;
  values[Census::mappings] = mapped.all;
  values[Census::resident_bytes] = resident_bytes("self");
  if (!broker_of_job.empty()) look_at_broker(census, broker_of_job);
  return census;
}

Growth::Growth(std::uint64_t warm_up) : warm_up_(warm_up) {
  windows_.reserve(kWindows);
}

void Growth::record(const Census& census) {
  if (warm_up_ != 0) {
    --warm_up_;
    return;
  }
  if (rounds_ == 0) first_ = least_ = census;
  last_ = census;
  take_least(least_, census);
  if (rounds_++ % window_rounds_ != 0) return take_least(windows_.back(), census);
  if (windows_.size() == kWindows) {
    for (std::size_t i = 0; i < kWindows / 2; ++i) {
      windows_[i] = windows_[2 * i];
      take_least(windows_[i], windows_[2 * i + 1]);
    }
    windows_.resize(kWindows / 2);
    window_rounds_ *= 2;
  }
  windows_.push_back(census);
}

std::string Growth::more_than_ever(const Census& census) const {
  std::string text;
  if (rounds_ == 0) return text;
  for (std::size_t i = 0; i < Census::kNames; ++i)
    if (kRules[i].is_count() && census.values[i] > least_.values[i])
      text += fmt::format("{}{} {} instead of {}", text.empty() ? "" : ", ", kRules[i].name, census.values[i],
                          least_.values[i]);
  return text;
}

std::string Growth::trend() const {
  std::string text;
  const auto third = windows_.size() / 3;
  if (third == 0) return text;
  const Census first = least_of(windows_, 0, third);
  const Census last = least_of(windows_, windows_.size() - third, windows_.size());
  for (std::size_t i = 0; i < Census::kNames; ++i) {
    const auto& rule = kRules[i];
    const auto allowed =
        rule.slack + static_cast<std::uint64_t>(rule.slack_per_round * static_cast<double>(rounds_));
    if (last.values[i] > first.values[i] + allowed)
      text += fmt::format("{}{} from {} to {} over {} rounds (allowed: {} more)", text.empty() ? "" : ", ",
                          rule.name, first.values[i], last.values[i], rounds_, allowed);
  }
  return text;
}

std::string Growth::summary() const {
  if (rounds_ == 0) return "no round after warming up";
  std::string text;
  for (std::size_t i = 0; i < Census::kNames; ++i) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kRules[i].name, first_.values[i]);
    if (first_.values[i] != last_.values[i]) text += fmt::format(" -> {}", last_.values[i]);
  }
  return text;
}

}  // namespace tugline::soak

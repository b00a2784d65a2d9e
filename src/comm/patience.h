// SPDX-License-Identifier: Apache-2.0
// How long a wait has lasted, and what follows from that: spinning, the length of naps, reports, the end.
// Pure: the caller brings the time, so that tests bring their own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/settings.h"

namespace tugline::comm {

/// One wait without progress so far. All times are base::RunningClock's nanoseconds. Not thread-safe.
class Patience {
 public:
  /// Naps grow with what was waited, so what nobody rings for is seen at most half of that late. The longest
  /// is a tenth of the time in which a death is to be noticed; a hundred wake-ups a second cost some
  /// 0.5 % of a core.
  static constexpr std::uint64_t kShortestNap = 50'000;
  static constexpr std::uint64_t kLongestNap = 10'000'000;
  static constexpr std::uint64_t kLongestSilence = 60'000'000'000;
  static constexpr std::uint64_t kLongWait = 500'000'000;  ///< without settings that say more

  /// Ranks that share cores yield before they sleep, but not for long: whoever is waited for needs the core.
  static constexpr std::uint64_t kLongestYield = 50'000;

  Patience(const base::Settings& settings, bool own_core, std::uint64_t now) noexcept
      : spin_(std::min(std::uint64_t{settings.spin_us} * 1000,
                       own_core ? std::numeric_limits<std::uint64_t>::max() : kLongestYield)),
        report_after_(static_cast<std::uint64_t>(settings.report_after.count()) * 1'000'000),
        fail_after_(static_cast<std::uint64_t>(settings.fail_after.count()) * 1'000'000) {
    const auto sooner =
        report_after_ == 0 || (fail_after_ != 0 && fail_after_ < report_after_) ? fail_after_ : report_after_;
    long_after_ = sooner == 0 ? kLongWait : sooner / 2;
    moved(now);
  }

  /// Something came: the waiting starts anew.
  void moved(std::uint64_t now) noexcept {
    since_ = now;
    next_report_ = now + report_after_;
  }
  std::uint64_t waited(std::uint64_t now) const noexcept { return now - since_; }
  bool may_spin(std::uint64_t now) const noexcept { return waited(now) < spin_; }
  std::uint64_t nap(std::uint64_t now) const noexcept {
    return std::clamp(waited(now) / 2, kShortestNap, kLongestNap);
  }
  /// True when a report is due; the next one is due after as long as was waited so far, a minute at most.
  bool report_is_due(std::uint64_t now) noexcept {
    if (report_after_ == 0 || now < next_report_) return false;
    next_report_ = now + std::max(report_after_, std::min(waited(now), kLongestSilence));
    return true;
  }
  /// True when others may want to know of this wait: before any of them reports or fails one for it.
  bool is_long(std::uint64_t now) const noexcept { return waited(now) >= long_after_; }
  /// True when the time after which a wait fails has passed.
  bool is_over(std::uint64_t now) const noexcept { return fail_after_ != 0 && waited(now) >= fail_after_; }

 private:
  std::uint64_t spin_;
  std::uint64_t report_after_;
  std::uint64_t fail_after_;
  std::uint64_t long_after_ = 0;
  std::uint64_t since_ = 0;
  std::uint64_t next_report_ = 0;
};

}  // namespace tugline::comm

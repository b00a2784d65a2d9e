// SPDX-License-Identifier: Apache-2.0
#include "core/plan/step_price.h"

#include <algorithm>

namespace tugline::core {

namespace {

/// Price of the bytes that a rank fetches from others, and of those it writes where others read last.
class Fetching {
 public:
  Fetching(std::int32_t self, const CostModel& model) noexcept : self_(self), model_(model) {}
  void add(std::int32_t owner, std::uint64_t bytes) noexcept {
    const bool far = model_.is_far(owner, self_);
    seconds_ +=
        static_cast<double>(bytes) / (far ? model_.far_bytes_per_second : model_.remote_bytes_per_second);
    latency_ = std::max(latency_, far ? model_.far_latency_seconds : model_.remote_latency_seconds);
  }
  double seconds() const noexcept { return seconds_; }
  double latency() const noexcept { return latency_; }

 private:
  std::int32_t self_;
  const CostModel& model_;
  double seconds_ = 0;
  double latency_ = 0;
};

}  // namespace

double step_seconds(const Step& step, std::int32_t self, std::int32_t ranks, const CostModel& model) {
  const auto bytes = static_cast<double>(step.bytes);
  Fetching fetching(self, model);
  const auto fetch = [&](const Place& place) {
    if (place.rank != self) fetching.add(place.rank, step.bytes);
  };
  double work = 0;
  switch (step.kind) {
    case StepKind::copy:
    case StepKind::put: {
      fetch(step.source);
      // A core fetches the lines that it writes from who read them last. Two ranks trade their scratch, so
      // that it is the writer itself.
      const bool read_by_others =
          step.destination.space == Space::scratch ? ranks > 2 : step.destination.rank != self;
      if (read_by_others && step.source.rank == self) fetching.add(step.destination.rank, step.bytes);
      work = std::max(bytes / model.local_bytes_per_second, fetching.seconds()) + fetching.latency();
      break;
    }
    case StepKind::reduce:
      fetch(step.source);
      fetch(step.second);
      for (const Place& operand : step.more) fetch(operand);
      work = std::max(static_cast<double>(1 + step.more.size()) * bytes / model.reduce_bytes_per_second,
                      fetching.seconds()) +
             fetching.latency();
      break;
    case StepKind::scale:
    case StepKind::put_packet:
    case StepKind::copy_packet:
      work = bytes / model.local_bytes_per_second;
      break;
    case StepKind::reduce_packet:
      work = (step.peer == kEveryone ? ranks : 1) * bytes / model.reduce_bytes_per_second;
      break;
    case StepKind::signal:
      // One store per peer.
      if (step.peer == kEveryone) work = std::max(ranks - 2, 0) * model.step_seconds;
      break;
    case StepKind::wait:
      break;
  }
  return model.step_seconds + work;
}

}  // namespace tugline::core

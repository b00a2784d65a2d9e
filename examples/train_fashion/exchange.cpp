// SPDX-License-Identifier: Apache-2.0
#include "exchange.h"

#include <algorithm>

#include "membership.h"
#include "tugline/error.h"

namespace train_fashion {

GradientExchange::GradientExchange(tugline::Device& device, tugline::Communicator communicator,
                                   std::span<float> gradient, std::vector<Bucket> buckets)
    : communicator_(std::move(communicator)),
      stream_(device.stream()),
      gradient_(gradient),
      buckets_(std::move(buckets)) {
  for (std::size_t i = 0; i < buckets_.size(); ++i) done_.emplace_back(device);
}

void GradientExchange::reduce(std::size_t bucket, tugline::EventRef ready) {
  stream_.wait(ready);
  if (bucket == 0) {
    stream_.launch([this] {
      first_start_ns_ = now_ns();
      return tugline::Status::success();
    });
  }
  const auto [offset, count] = buckets_[bucket];
  communicator_.all_reduce(gradient_.subspan(offset, count), tugline::ReduceOp::sum, stream_);
  stream_.record(done_[bucket]);
}

void GradientExchange::wait(std::size_t bucket) {
  waits_.push_back({now_ns(), 0});
  try {
    done_[bucket].sync();
  } catch (...) {
    waits_.back().end_ns = now_ns();
    throw;
  }
  waits_.back().end_ns = now_ns();
}

std::int64_t GradientExchange::take_waiting_after(std::int64_t from_ns) noexcept {
  std::int64_t sum = 0;
  for (const auto& [begin, end] : waits_) sum += std::max<std::int64_t>(0, end - std::max(begin, from_ns));
  waits_.clear();
  return sum;
}

void GradientExchange::drain() noexcept {
  try {
    stream_.sync();
  } catch (const tugline::Error&) {
    // The stream's error is the one that wait() has thrown already, and is cleared by this.
  }
}

}  // namespace train_fashion

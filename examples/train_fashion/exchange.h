// SPDX-License-Identifier: Apache-2.0
// Reduces gradients while they are still being computed: buckets of one contiguous buffer, each enqueued on a
// communication stream behind the event that says that it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tugline/communicator.h"
#include "tugline/device.h"

namespace train_fashion {

/// Not thread-safe.
class GradientExchange {
 public:
  /// A contiguous part of the gradient buffer, in elements.
  struct Bucket {
    std::size_t offset;
    std::size_t count;
  };

  /// Buckets are reduced in their order.
  GradientExchange(tugline::Device& device, tugline::Communicator communicator, std::span<float> gradient,
                   std::vector<Bucket> buckets);

  /// Enqueues the sum over all ranks of a bucket, to start once `ready` is done. Does not block.
  void reduce(std::size_t bucket, tugline::EventRef ready);
  /// Blocks until the bucket is reduced. Throws the operation's error.
  void wait(std::size_t bucket);
  /// Blocks until nothing is enqueued any more, whatever became of it.
  void drain() noexcept;

  std::size_t bucket_count() const noexcept { return buckets_.size(); }
  const Bucket& bucket(std::size_t index) const noexcept { return buckets_[index]; }
  /// When the stream came to the last step's first bucket; valid after its wait().
  std::int64_t first_start_ns() const noexcept { return first_start_ns_; }
  /// Time spent in wait() since the last call of this, as far as it lies after `from_ns`. What lies before it
  /// is hidden behind computing.
  std::int64_t take_waiting_after(std::int64_t from_ns) noexcept;

 private:
  struct Interval {
    std::int64_t begin_ns;
    std::int64_t end_ns;
  };

  tugline::Communicator communicator_;
  tugline::Stream stream_;
  std::span<float> gradient_;
  std::vector<Bucket> buckets_;
  std::vector<tugline::Event> done_;
  std::int64_t first_start_ns_ = 0;  ///< written on the stream, read behind done_[0]
  std::vector<Interval> waits_;
};

}  // namespace train_fashion

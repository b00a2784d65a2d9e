// SPDX-License-Identifier: Apache-2.0
// Which images each step uses, and which of them a rank does. The global batch depends on the seed and the
// step alone, so any number of ranks trains on the same batches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace train_fashion {

/// A rank's part of a global batch: positions begin .. end-1.
struct Share {
  int begin;
  int end;
  int count() const noexcept { return end - begin; }
};

/// Contiguous shares, equal to within one image; empty ones where there are more ranks than images.
Share share_of(int batch, int rank, int size) noexcept;

/// A step's global batch is cut into this many micro-batches for each of `size` ranks: none has more than
/// `micro_batch` of `batch` images, and all ranks have equally many.
int micro_batches_per_rank(int batch, int micro_batch, int size) noexcept;

/// Micro-batch `index` of the `per_rank` into which a rank's share is cut. The batch is cut in one go, so
/// that one rank with all the micro-batches works through the same ones as ranks that have one each.
Share micro_batch_of(int batch, int rank, int size, int per_rank, int index) noexcept;

/// Not thread-safe: keeps the current epoch's order.
class Sampler {
 public:
  Sampler(std::uint64_t seed, int images, int batch);

  /// The last batch of an epoch is smaller when the batch does not divide the images.
  std::uint64_t steps_per_epoch() const noexcept { return steps_per_epoch_; }
  /// The images of a step's global batch, valid until the next call.
  std::span<const std::uint32_t> batch(std::uint64_t step);

 private:
  void shuffle(std::uint64_t epoch);

  std::uint64_t seed_;
  int batch_;
  std::uint64_t steps_per_epoch_;
  std::uint64_t epoch_ = 0;
  std::vector<std::uint32_t> order_;
};

}  // namespace train_fashion

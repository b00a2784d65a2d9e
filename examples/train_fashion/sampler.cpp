// SPDX-License-Identifier: Apache-2.0
#include "sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "random.h"

namespace train_fashion {

Share share_of(int batch, int rank, int size) noexcept {
  const auto cut = [&](int index) {
    return static_cast<int>(static_cast<std::int64_t>(batch) * index / size);
  };
  return {cut(rank), cut(rank + 1)};
}

int micro_batches_per_rank(int batch, int micro_batch, int size) noexcept {
  const auto needed = (static_cast<std::int64_t>(batch) + micro_batch - 1) / micro_batch;
  return static_cast<int>((needed + size - 1) / size);
}

Share micro_batch_of(int batch, int rank, int size, int per_rank, int index) noexcept {
  return share_of(batch, rank * per_rank + index, size * per_rank);
}

Sampler::Sampler(std::uint64_t seed, int images, int batch)
    : seed_(seed),
      batch_(batch),
      steps_per_epoch_((static_cast<std::uint64_t>(images) + static_cast<std::uint64_t>(batch) - 1) /
                       static_cast<std::uint64_t>(batch)),
      order_(static_cast<std::size_t>(images)) {
  shuffle(0);
}

void Sampler::shuffle(std::uint64_t epoch) {
  // From the identity each time: an epoch's order does not depend on which epochs were visited before.
  std::iota(order_.begin(), order_.end(), 0U);
  Random random(seed_, Random::Purpose::order, epoch);
  for (std::size_t i = order_.size() - 1; i > 0; --i) {
    std::swap(order_[i], order_[random.below(static_cast<std::uint32_t>(i + 1))]);
  }
  epoch_ = epoch;
}

std::span<const std::uint32_t> Sampler::batch(std::uint64_t step) {
  const std::uint64_t epoch = step / steps_per_epoch_;
  if (epoch != epoch_) shuffle(epoch);
  const std::size_t begin = (step % steps_per_epoch_) * static_cast<std::size_t>(batch_);
  const std::size_t end = std::min(order_.size(), begin + static_cast<std::size_t>(batch_));
  return {order_.data() + begin, end - begin};
}

}  // namespace train_fashion

// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient descent with Nesterov momentum and weight decay, and its learning rate over time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace train_fashion {

/// One cycle: rises to the peak over the first part of the steps, then falls to zero. It rises with the
/// square of the time: large first steps would blow up the rounding in which different numbers of ranks
/// differ.
class LearningRate {
 public:
  LearningRate(float peak, std::uint64_t steps) noexcept : peak_(peak), steps_(steps) {}
  float at(std::uint64_t step) const noexcept;

 private:
  float peak_;
  std::uint64_t steps_;
};

/// The momentum is private to a rank and the same on all: it is a function of the reduced gradients alone. It
/// has two copies, as the parameters have: an update counts when it is committed, and may be done again
/// before.
class Sgd {
 public:
  struct Options {
    float momentum = 0.9F;
    float weight_decay = 5e-4F;
  };

  Sgd(std::size_t parameters, Options options)
      : options_(options), velocity_(parameters), next_velocity_(parameters) {}
  /// Writes the parameters offset .. offset+count-1 of the next version; `current`, `gradient` and `next` are
  /// whole buffers.
  void update(std::size_t offset, std::size_t count, std::span<const float> current,
              std::span<const float> gradient, float learning_rate, std::span<float> next);
  /// Ends a step all of whose parameters have been updated.
  void commit() noexcept { velocity_.swap(next_velocity_); }

 private:
  Options options_;
  std::vector<float> velocity_;
  std::vector<float> next_velocity_;
};

}  // namespace train_fashion

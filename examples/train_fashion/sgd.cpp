// SPDX-License-Identifier: Apache-2.0
#include "sgd.h"

namespace train_fashion {
namespace {

constexpr double kRisingPart = 0.2;

}  // namespace

float LearningRate::at(std::uint64_t step) const noexcept {
  const double now = (static_cast<double>(step) + 1) / static_cast<double>(steps_ + 1);
  const double risen = now / kRisingPart;
  return static_cast<float>(peak_ * (risen < 1 ? risen * risen : (1 - now) / (1 - kRisingPart)));
}

void Sgd::update(std::size_t offset, std::size_t count, std::span<const float> current,
                 std::span<const float> gradient, float learning_rate, std::span<float> next) {
  const float* __restrict p = current.data() + offset;
  const float* __restrict g = gradient.data() + offset;
  const float* __restrict v = velocity_.data() + offset;
  float* __restrict v_next = next_velocity_.data() + offset;
  float* __restrict to = next.data() + offset;
  const float momentum = options_.momentum;
  const float decay = options_.weight_decay;
  for (std::size_t i = 0; i < count; ++i) {
    const float slope = g[i] + decay * p[i];
    v_next[i] = momentum * v[i] + slope;
    to[i] = p[i] - learning_rate * (slope + momentum * v_next[i]);
  }
}

}  // namespace train_fashion

// SPDX-License-Identifier: Apache-2.0
// A fully connected layer, with or without ReLU behind it.
#pragma once

#include <cstddef>

namespace train_fashion {

enum class Activation { none, relu };

struct DenseShape {
  int inputs;
  int outputs;
  Activation activation;
};

/// Stateless; thread-safe.
template <class Real>
class Dense {
 public:
  explicit Dense(DenseShape shape) noexcept : shape_(shape) {}

  /// Elements of weights [input][output], then biases [output].
  std::size_t parameter_count() const noexcept {
    return weight_count() + static_cast<std::size_t>(shape_.outputs);
  }
  std::size_t weight_count() const noexcept {
    return static_cast<std::size_t>(shape_.inputs) * static_cast<std::size_t>(shape_.outputs);
  }
  int fan_in() const noexcept { return shape_.inputs; }

  void forward(const Real* parameters, const Real* input, int images, Real* output) const;
  /// Writes the sums over the images to `gradient`. `output` is what forward() gave; `output_gradient` is
  /// overwritten where ReLU cut off. `input_gradient` may be null.
  void backward(const Real* parameters, const Real* input, const Real* output, Real* output_gradient,
                int images, Real* gradient, Real* input_gradient) const;

 private:
  DenseShape shape_;
};

extern template class Dense<float>;
extern template class Dense<double>;

}  // namespace train_fashion

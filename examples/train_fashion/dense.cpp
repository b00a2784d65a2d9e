// SPDX-License-Identifier: Apache-2.0
#include "dense.h"

#include <algorithm>

#include "blas.h"

namespace train_fashion {

template <class Real>
void Dense<Real>::forward(const Real* parameters, const Real* input, int images, Real* output) const {
  const auto outputs = static_cast<std::size_t>(shape_.outputs);
  const Real* bias = parameters + weight_count();
  for (int image = 0; image < images; ++image) {
    std::copy_n(bias, outputs, output + static_cast<std::size_t>(image) * outputs);
  }
  gemm(Operand::plain, Operand::plain, images, shape_.outputs, shape_.inputs, input, shape_.inputs,
       parameters, shape_.outputs, Real{1}, output, shape_.outputs);
  if (shape_.activation == Activation::relu) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(images) * outputs; ++i) {
      output[i] = std::max(output[i], Real{0});
    }
  }
}

template <class Real>
void Dense<Real>::backward(const Real* parameters, const Real* input, const Real* output,
                           Real* output_gradient, int images, Real* gradient, Real* input_gradient) const {
  const auto outputs = static_cast<std::size_t>(shape_.outputs);
  Real* bias_gradient = gradient + weight_count();
  std::fill_n(bias_gradient, outputs, Real{0});
  for (int image = 0; image < images; ++image) {
    const std::size_t at = static_cast<std::size_t>(image) * outputs;
    for (std::size_t i = 0; i < outputs; ++i) {
      if (shape_.activation == Activation::relu) {
        output_gradient[at + i] = output[at + i] > 0 ? output_gradient[at + i] : Real{0};
      }
      bias_gradient[i] += output_gradient[at + i];
    }
  }
  gemm(Operand::transposed, Operand::plain, shape_.inputs, shape_.outputs, images, input, shape_.inputs,
       output_gradient, shape_.outputs, Real{0}, gradient, shape_.outputs);
  if (input_gradient != nullptr) {
    gemm(Operand::plain, Operand::transposed, images, shape_.inputs, shape_.outputs, output_gradient,
         shape_.outputs, parameters, shape_.outputs, Real{0}, input_gradient, shape_.inputs);
  }
}

template class Dense<float>;
template class Dense<double>;

}  // namespace train_fashion

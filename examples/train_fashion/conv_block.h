// SPDX-License-Identifier: Apache-2.0
// A convolution (3x3, same size), 2x2 max-pooling and ReLU as one unit. Pooling before ReLU gives the same
// values as after it, and lets the block keep one byte per pooled element instead of the convolution's whole
// output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace train_fashion {

/// Images are [image][row][column][channel]; `side` is their height and width before pooling.
struct ConvShape {
  int side;
  int in_channels;
  int out_channels;
};

/// Not thread-safe: it owns the scratch of its matrix products.
template <class Real>
class ConvBlock {
 public:
  static constexpr int kKernel = 3;

  explicit ConvBlock(ConvShape shape);

  /// Elements of weights [row][column][in channel][out channel], then biases [out channel].
  std::size_t parameter_count() const noexcept { return weight_count() + static_cast<std::size_t>(out_); }
  std::size_t weight_count() const noexcept {
    return static_cast<std::size_t>(patch_) * static_cast<std::size_t>(out_);
  }
  int fan_in() const noexcept { return patch_; }
  /// Elements of one image before and after the block.
  std::size_t input_size() const noexcept { return in_pixels_ * static_cast<std::size_t>(in_); }
  std::size_t output_size() const noexcept { return in_pixels_ / 4 * static_cast<std::size_t>(out_); }

  /// `winners` gets, per output element, which of the four pooled elements was the largest, or 4 when
  /// ReLU cut it off.
  void forward(const Real* parameters, const Real* input, int images, Real* output, std::uint8_t* winners);
  /// Writes the sums over the images to `gradient`; `input_gradient` may be null when nobody needs it.
  void backward(const Real* parameters, const Real* input, const std::uint8_t* winners,
                const Real* output_gradient, int images, Real* gradient, Real* input_gradient);

 private:
  void gather_patches(const Real* input, int images);
  void scatter_patches(Real* input_gradient, int images) const;
  void pool(const Real* bias, int images, Real* output, std::uint8_t* winners) const;
  void unpool(const Real* output_gradient, const std::uint8_t* winners, int images);

  int side_;
  int in_;
  int out_;
  int patch_;  ///< elements of one patch: kernel * kernel * in channels
  std::size_t in_pixels_;
  int chunk_images_;           ///< as many as keep the scratch within a core's cache
  std::vector<Real> patches_;  ///< [pixel][patch]
  std::vector<Real> maps_;     ///< [pixel][out channel]: the convolution's output or its gradient
};

extern template class ConvBlock<float>;
extern template class ConvBlock<double>;

}  // namespace train_fashion

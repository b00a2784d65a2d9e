// SPDX-License-Identifier: Apache-2.0
// The network: two convolution blocks and two dense layers. Parameters and gradients are one contiguous
// buffer each, layer after layer, so that a layer's gradient is one message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "conv_block.h"
#include "dense.h"

namespace train_fashion {

struct NetworkShape {
  int side = 28;  ///< divisible by 4: pooled twice
  int first_channels = 32;
  int second_channels = 64;
  int hidden = 320;
  int classes = 10;
};

/// Where a layer's parameters lie in the buffer, in elements.
struct LayerRange {
  std::size_t offset;
  std::size_t count;
};

/// Sums over a batch or a share of one.
struct BatchScore {
  double loss = 0;
  int correct = 0;
};

/// What backward() does with the gradient's buffer.
enum class GradientSum {
  start,  ///< writes it
  add,    ///< adds to it as the sum over ranks does: this batch's own gradient first, then one addition
};

/// Layers are numbered from the input, 0 .. kLayers-1. Keeps the activations of the last forward(). Not
/// thread-safe.
template <class Real>
class Network {
 public:
  static constexpr int kLayers = 4;

  /// `max_images` bounds the images of one forward().
  Network(NetworkShape shape, int max_images);

  std::size_t parameter_count() const noexcept { return parameter_count_; }
  LayerRange layer(int index) const noexcept { return ranges_[index]; }
  int max_images() const noexcept { return max_images_; }
  std::size_t image_size() const noexcept { return first_.input_size(); }
  /// Where forward() reads its images: max_images() * image_size() elements.
  std::span<Real> input() noexcept { return input_; }

  /// He's normal weights and zero biases; the same for the same seed on every rank.
  void initialise(std::span<Real> parameters, std::uint64_t seed) const;
  void forward(std::span<const Real> parameters, int images);
  /// Softmax and cross-entropy of the last forward(); prepares backward() of loss sum * `scale`.
  BatchScore score(std::span<const std::uint8_t> labels, Real scale);
  /// Sums one layer's gradient. Call for each layer, from the last to the first, after score().
  void backward(int layer, std::span<const Real> parameters, std::span<Real> gradient, GradientSum sum);

 private:
  void layer_gradient(int layer, const Real* parameters, Real* gradient);

  NetworkShape shape_;
  ConvBlock<Real> first_;
  ConvBlock<Real> second_;
  Dense<Real> hidden_;
  Dense<Real> last_;
  LayerRange ranges_[kLayers];
  std::size_t parameter_count_ = 0;
  int max_images_;
  int images_ = 0;
  std::vector<Real> input_, first_out_, second_out_, hidden_out_, logits_;
  std::vector<std::uint8_t> first_winners_, second_winners_;
  std::vector<Real> first_gradient_, second_gradient_, hidden_gradient_, logit_gradient_;
  std::vector<Real> addend_;  ///< a layer's gradient on its way to a sum; empty before the first addition
};

extern template class Network<float>;
extern template class Network<double>;

}  // namespace train_fashion

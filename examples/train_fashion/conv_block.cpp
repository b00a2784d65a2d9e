// SPDX-License-Identifier: Apache-2.0
#include "conv_block.h"

#include <algorithm>

#include "blas.h"

namespace train_fashion {
namespace {

constexpr std::size_t kScratchBytes = 1 << 20;
constexpr std::uint8_t kNone = 4;

// The inner loops run over channels, free of aliases and branches, so that the compiler vectorises them. In
// `upper` and `lower` the right pixel's channels follow the left one's.
template <class Real>
void pool_channels(const Real* __restrict upper, const Real* __restrict lower, const Real* __restrict bias,
                   int channels, Real* __restrict output, std::uint8_t* __restrict winners) {
  const Real* __restrict upper_right = upper + channels;
  const Real* __restrict lower_right = lower + channels;
  for (int c = 0; c < channels; ++c) {
    const Real top = std::max(upper[c], upper_right[c]);
    const Real bottom = std::max(lower[c], lower_right[c]);
    const int top_winner = upper_right[c] > upper[c] ? 1 : 0;
    const int bottom_winner = lower_right[c] > lower[c] ? 3 : 2;
    const int winner = bottom > top ? bottom_winner : top_winner;
    const Real best = std::max(top, bottom) + bias[c];
    winners[c] = static_cast<std::uint8_t>(best > Real{0} ? winner : int{kNone});
    output[c] = best > Real{0} ? best : Real{0};
  }
}

template <class Real>
void unpool_channels(const Real* __restrict gradient, const std::uint8_t* __restrict winners, int channels,
                     Real* __restrict upper, Real* __restrict lower) {
  for (int c = 0; c < channels; ++c) {
    const Real value = gradient[c];
    const int winner = winners[c];
    upper[c] = winner == 0 ? value : Real{0};
    upper[channels + c] = winner == 1 ? value : Real{0};
    lower[c] = winner == 2 ? value : Real{0};
    lower[channels + c] = winner == 3 ? value : Real{0};
  }
}

// Adds the gradients of one pooled pixel's biases: ReLU's cut-off elements have none.
template <class Real>
void add_bias_gradient(const Real* __restrict gradient, const std::uint8_t* __restrict winners, int channels,
                       Real* __restrict sum) {
  for (int c = 0; c < channels; ++c) sum[c] += winners[c] == kNone ? Real{0} : gradient[c];
}

}  // namespace

template <class Real>
ConvBlock<Real>::ConvBlock(ConvShape shape)
    : side_(shape.side),
      in_(shape.in_channels),
      out_(shape.out_channels),
      patch_(kKernel * kKernel * shape.in_channels),
      in_pixels_(static_cast<std::size_t>(shape.side) * static_cast<std::size_t>(shape.side)) {
  const std::size_t image_bytes = in_pixels_ * static_cast<std::size_t>(patch_ + out_) * sizeof(Real);
  chunk_images_ = static_cast<int>(std::max<std::size_t>(1, kScratchBytes / image_bytes));
  const std::size_t pixels = in_pixels_ * static_cast<std::size_t>(chunk_images_);
  patches_.resize(pixels * static_cast<std::size_t>(patch_));
  maps_.resize(pixels * static_cast<std::size_t>(out_));
}

template <class Real>
void ConvBlock<Real>::gather_patches(const Real* input, int images) {
  Real* to = patches_.data();
  const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(side_) * in_;
  const int run = kKernel * in_;  // a patch's row is one contiguous run of the image
  for (int image = 0; image < images; ++image) {
    const Real* from = input + static_cast<std::size_t>(image) * input_size();
    for (int y = 0; y < side_; ++y) {
      for (int x = 0; x < side_; ++x) {
        for (int ky = -1; ky <= 1; ++ky, to += run) {
          const int source_y = y + ky;
          if (source_y < 0 || source_y >= side_) {
            std::fill_n(to, run, Real{0});
            continue;
          }
          const Real* source = from + source_y * row + static_cast<std::ptrdiff_t>(x - 1) * in_;
          if (in_ == 1 && x > 0 && x < side_ - 1) {  // three elements: not worth a call of memmove
            to[0] = source[0];
            to[1] = source[1];
            to[2] = source[2];
            continue;
          }
          int begin = 0;
          int end = run;
          if (x == 0) {
            std::fill_n(to, in_, Real{0});
            begin = in_;
          }
          if (x == side_ - 1) {
            end = run - in_;
            std::fill_n(to + end, in_, Real{0});
          }
          std::copy(source + begin, source + end, to + begin);
        }
      }
    }
  }
}

template <class Real>
void ConvBlock<Real>::scatter_patches(Real* input_gradient, int images) const {
  const Real* from = patches_.data();
  const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(side_) * in_;
  const int run = kKernel * in_;
  std::fill_n(input_gradient, static_cast<std::size_t>(images) * input_size(), Real{0});
  for (int image = 0; image < images; ++image) {
    Real* to = input_gradient + static_cast<std::size_t>(image) * input_size();
    for (int y = 0; y < side_; ++y) {
      for (int x = 0; x < side_; ++x) {
        for (int ky = -1; ky <= 1; ++ky, from += run) {
          const int target_y = y + ky;
          if (target_y < 0 || target_y >= side_) continue;
          Real* target = to + target_y * row + static_cast<std::ptrdiff_t>(x - 1) * in_;
          const int begin = x == 0 ? in_ : 0;
          const int end = x == side_ - 1 ? run - in_ : run;
          for (int i = begin; i < end; ++i) target[i] += from[i];
        }
      }
    }
  }
}

template <class Real>
void ConvBlock<Real>::pool(const Real* bias, int images, Real* output, std::uint8_t* winners) const {
  const int half = side_ / 2;
  const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(side_) * out_;
  const Real* map = maps_.data();
  for (int y = 0; y < images * half; ++y, map += 2 * row) {  // images lie one behind the other
    for (int x = 0; x < half; ++x, output += out_, winners += out_) {
      const Real* upper = map + static_cast<std::ptrdiff_t>(2 * x) * out_;
      pool_channels(upper, upper + row, bias, out_, output, winners);
    }
  }
}

template <class Real>
void ConvBlock<Real>::unpool(const Real* output_gradient, const std::uint8_t* winners, int images) {
  const int half = side_ / 2;
  const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(side_) * out_;
  Real* map = maps_.data();
  for (int y = 0; y < images * half; ++y, map += 2 * row) {
    for (int x = 0; x < half; ++x, output_gradient += out_, winners += out_) {
      Real* upper = map + static_cast<std::ptrdiff_t>(2 * x) * out_;
      unpool_channels(output_gradient, winners, out_, upper, upper + row);
    }
  }
}

template <class Real>
void ConvBlock<Real>::forward(const Real* parameters, const Real* input, int images, Real* output,
                              std::uint8_t* winners) {
  const Real* bias = parameters + weight_count();
  for (int first = 0; first < images; first += chunk_images_) {
    const int count = std::min(chunk_images_, images - first);
    const auto at = static_cast<std::size_t>(first);
    gather_patches(input + at * input_size(), count);
    gemm(Operand::plain, Operand::plain, count * static_cast<int>(in_pixels_), out_, patch_, patches_.data(),
         patch_, parameters, out_, Real{0}, maps_.data(), out_);
    pool(bias, count, output + at * output_size(), winners + at * output_size());
  }
}

template <class Real>
void ConvBlock<Real>::backward(const Real* parameters, const Real* input, const std::uint8_t* winners,
                               const Real* output_gradient, int images, Real* gradient,
                               Real* input_gradient) {
  std::fill_n(gradient, parameter_count(), Real{0});
  Real* bias_gradient = gradient + weight_count();
  for (int first = 0; first < images; first += chunk_images_) {
    const int count = std::min(chunk_images_, images - first);
    const int pixels = count * static_cast<int>(in_pixels_);
    const auto at = static_cast<std::size_t>(first);
    const Real* outward = output_gradient + at * output_size();
    const std::uint8_t* chosen = winners + at * output_size();
    unpool(outward, chosen, count);
    const auto channels = static_cast<std::size_t>(out_);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count) * output_size(); i += channels) {
      add_bias_gradient(outward + i, chosen + i, out_, bias_gradient);
    }
    gather_patches(input + at * input_size(), count);
    gemm(Operand::transposed, Operand::plain, patch_, out_, pixels, patches_.data(), patch_, maps_.data(),
         out_, Real{1}, gradient, out_);
    if (input_gradient != nullptr) {
      gemm(Operand::plain, Operand::transposed, pixels, patch_, out_, maps_.data(), out_, parameters, out_,
           Real{0}, patches_.data(), patch_);
      scatter_patches(input_gradient + at * input_size(), count);
    }
  }
}

template class ConvBlock<float>;
template class ConvBlock<double>;

}  // namespace train_fashion

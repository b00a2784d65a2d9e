// SPDX-License-Identifier: Apache-2.0
#include "network.h"

#include <algorithm>
#include <cmath>

#include "random.h"

namespace train_fashion {
namespace {

template <class Real>
void fill_normal(std::span<Real> values, double deviation, Random& random) {
  for (Real& value : values) value = static_cast<Real>(deviation * random.normal());
}

template <class Real>
void add(const Real* __restrict addend, std::size_t count, Real* __restrict sum) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += addend[i];
}

}  // namespace

template <class Real>
Network<Real>::Network(NetworkShape shape, int max_images)
    : shape_(shape),
      first_({shape.side, 1, shape.first_channels}),
      second_({shape.side / 2, shape.first_channels, shape.second_channels}),
      hidden_({static_cast<int>(second_.output_size()), shape.hidden, Activation::relu}),
      last_({shape.hidden, shape.classes, Activation::none}),
      max_images_(max_images) {
  const std::size_t counts[kLayers] = {first_.parameter_count(), second_.parameter_count(),
                                       hidden_.parameter_count(), last_.parameter_count()};
  for (int i = 0; i < kLayers; ++i) {
    ranges_[i] = {parameter_count_, counts[i]};
    parameter_count_ += counts[i];
  }
  const auto images = static_cast<std::size_t>(max_images);
  input_.resize(images * first_.input_size());
  for (auto* values : {&first_out_, &first_gradient_}) values->resize(images * first_.output_size());
  first_winners_.resize(images * first_.output_size());
  for (auto* values : {&second_out_, &second_gradient_}) values->resize(images * second_.output_size());
  second_winners_.resize(images * second_.output_size());
  for (auto* values : {&hidden_out_, &hidden_gradient_}) {
    values->resize(images * static_cast<std::size_t>(shape.hidden));
  }
  for (auto* values : {&logits_, &logit_gradient_}) {
    values->resize(images * static_cast<std::size_t>(shape.classes));
  }
}

template <class Real>
void Network<Real>::initialise(std::span<Real> parameters, std::uint64_t seed) const {
  Random random(seed, Random::Purpose::weights);
  std::fill(parameters.begin(), parameters.end(), Real{0});
  auto layer_weights = [&](int index, const auto& layer, double gain) {
    fill_normal(parameters.subspan(ranges_[index].offset, layer.weight_count()),
                std::sqrt(gain / layer.fan_in()), random);
  };
  layer_weights(0, first_, 2);
  layer_weights(1, second_, 2);
  layer_weights(2, hidden_, 2);
  layer_weights(3, last_, 0.1);  // small logits: the first steps start from equal probabilities
}

template <class Real>
void Network<Real>::forward(std::span<const Real> parameters, int images) {
  images_ = images;
  if (images == 0) return;
  const Real* p = parameters.data();
  first_.forward(p + ranges_[0].offset, input_.data(), images, first_out_.data(), first_winners_.data());
  second_.forward(p + ranges_[1].offset, first_out_.data(), images, second_out_.data(),
                  second_winners_.data());
  hidden_.forward(p + ranges_[2].offset, second_out_.data(), images, hidden_out_.data());
  last_.forward(p + ranges_[3].offset, hidden_out_.data(), images, logits_.data());
}

template <class Real>
BatchScore Network<Real>::score(std::span<const std::uint8_t> labels, Real scale) {
  BatchScore score;
  const auto classes = static_cast<std::size_t>(shape_.classes);
  for (std::size_t image = 0; image < static_cast<std::size_t>(images_); ++image) {
    const Real* logits = logits_.data() + image * classes;
    Real* gradient = logit_gradient_.data() + image * classes;
    const std::size_t label = labels[image];
    const Real* best = std::max_element(logits, logits + classes);
    Real sum = 0;
    for (std::size_t i = 0; i < classes; ++i) {
      gradient[i] = std::exp(logits[i] - *best);
      sum += gradient[i];
    }
    for (std::size_t i = 0; i < classes; ++i) gradient[i] *= scale / sum;
    gradient[label] -= scale;
    score.loss += static_cast<double>(std::log(sum) + *best - logits[label]);
    score.correct += best - logits == static_cast<std::ptrdiff_t>(label) ? 1 : 0;
  }
  return score;
}

template <class Real>
void Network<Real>::backward(int layer, std::span<const Real> parameters, std::span<Real> gradient,
                             GradientSum sum) {
  const auto range = ranges_[layer];
  const Real* p = parameters.data() + range.offset;
  Real* g = gradient.data() + range.offset;
  if (sum == GradientSum::start) {
    layer_gradient(layer, p, g);
    return;
  }
  if (addend_.size() < range.count) addend_.resize(range.count);
  layer_gradient(layer, p, addend_.data());
  add(addend_.data(), range.count, g);
}

template <class Real>
void Network<Real>::layer_gradient(int layer, const Real* p, Real* g) {
  if (images_ == 0) {
    std::fill_n(g, ranges_[layer].count, Real{0});
    return;
  }
  switch (layer) {
    case 3:
      last_.backward(p, hidden_out_.data(), logits_.data(), logit_gradient_.data(), images_, g,
                     hidden_gradient_.data());
      break;
    case 2:
      hidden_.backward(p, second_out_.data(), hidden_out_.data(), hidden_gradient_.data(), images_, g,
                       second_gradient_.data());
      break;
    case 1:
      second_.backward(p, first_out_.data(), second_winners_.data(), second_gradient_.data(), images_, g,
                       first_gradient_.data());
      break;
    default:
      first_.backward(p, input_.data(), first_winners_.data(), first_gradient_.data(), images_, g, nullptr);
      break;
  }
}

template class Network<float>;
template class Network<double>;

}  // namespace train_fashion

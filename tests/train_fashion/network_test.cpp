// SPDX-License-Identifier: Apache-2.0
#include "network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "random.h"

namespace train_fashion {
namespace {

constexpr NetworkShape kSmall{
    .side = 8, .first_channels = 3, .second_channels = 5, .hidden = 7, .classes = 4};

struct Batch {
  std::vector<double> pixels;
  std::vector<std::uint8_t> labels;
};

Batch make_batch(int images, const NetworkShape& shape) {
  Random random(17, Random::Purpose::order);
  Batch batch;
  batch.pixels.resize(static_cast<std::size_t>(images * shape.side * shape.side));
  for (double& pixel : batch.pixels) pixel = random.normal();
  batch.labels.resize(static_cast<std::size_t>(images));
  for (auto& label : batch.labels) {
    label = static_cast<std::uint8_t>(random.below(static_cast<std::uint32_t>(shape.classes)));
  }
  return batch;
}

template <class Real>
BatchScore run_forward(Network<Real>& network, const std::vector<Real>& parameters, const Batch& batch,
                       int begin, int end, double scale) {
  const auto size = network.image_size();
  std::copy(batch.pixels.begin() + static_cast<std::ptrdiff_t>(size) * begin,
            batch.pixels.begin() + static_cast<std::ptrdiff_t>(size) * end, network.input().begin());
  network.forward(parameters, end - begin);
  return network.score(std::span(batch.labels).subspan(static_cast<std::size_t>(begin)),
                       static_cast<Real>(scale));
}

template <class Real>
std::vector<Real> gradient_of(Network<Real>& network, const std::vector<Real>& parameters, const Batch& batch,
                              int begin, int end, double scale) {
  run_forward(network, parameters, batch, begin, end, scale);
  std::vector<Real> gradient(network.parameter_count(), Real{-1});
  for (int layer = Network<Real>::kLayers - 1; layer >= 0; --layer) {
    network.backward(layer, parameters, gradient, GradientSum::start);
  }
  return gradient;
}

TEST(Network, LayersCoverTheParametersWithoutGaps) {
  Network<float> network(NetworkShape{}, 1);
  std::size_t next = 0;
  for (int layer = 0; layer < Network<float>::kLayers; ++layer) {
    EXPECT_EQ(network.layer(layer).offset, next);
    next += network.layer(layer).count;
  }
  EXPECT_EQ(next, network.parameter_count());
  EXPECT_GE(network.parameter_count(), 1'000'000U);
}

// Every parameter's gradient against the central difference of the loss, in double.
TEST(Network, GradientEqualsTheNumericalOne) {
  constexpr int kImages = 5;
  constexpr double kStep = 1e-5;
  Network<double> network(kSmall, kImages);
  std::vector<double> parameters(network.parameter_count());
  network.initialise(parameters, 3);
  Random random(5, Random::Purpose::weights);
  for (double& parameter : parameters) parameter += 0.05 * random.normal();  // biases too
  const Batch batch = make_batch(kImages, kSmall);
  const double scale = 1.0 / kImages;
  const auto gradient = gradient_of(network, parameters, batch, 0, kImages, scale);
  double largest = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const double kept = parameters[i];
    parameters[i] = kept + kStep;
    const double above = run_forward(network, parameters, batch, 0, kImages, scale).loss;
    parameters[i] = kept - kStep;
    const double below = run_forward(network, parameters, batch, 0, kImages, scale).loss;
    parameters[i] = kept;
    const double numerical = (above - below) * scale / (2 * kStep);
    ASSERT_NEAR(gradient[i], numerical, 1e-6 + 1e-5 * std::abs(numerical)) << "parameter " << i;
    largest = std::max(largest, std::abs(numerical));
  }
  EXPECT_GT(largest, 1e-2) << "the check compared nothing but zeros";
}

TEST(Network, SharesAddUpToTheWholeBatch) {
  constexpr int kImages = 11;
  Network<double> network(kSmall, kImages);
  std::vector<double> parameters(network.parameter_count());
  network.initialise(parameters, 1);
  const Batch batch = make_batch(kImages, kSmall);
  const auto whole = gradient_of(network, parameters, batch, 0, kImages, 1.0 / kImages);
  std::vector<double> sum(whole.size());
  const int cuts[] = {0, 4, 4, 10, kImages};  // the second share is empty
  for (int part = 0; part + 1 < 5; ++part) {
    const auto share = gradient_of(network, parameters, batch, cuts[part], cuts[part + 1], 1.0 / kImages);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += share[i];
  }
  for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_NEAR(sum[i], whole[i], 1e-12) << "parameter " << i;
}

// What makes ranks and micro-batches interchangeable: bit for bit the sum that an all-reduce of one rank per
// micro-batch gives, whatever the network computed before.
TEST(Network, AddingIsOneRoundedAdditionOfEachMicroBatchsOwnGradient) {
  constexpr int kImages = 11;
  constexpr int kLast = Network<float>::kLayers - 1;
  Network<float> network(kSmall, kImages);
  std::vector<float> parameters(network.parameter_count());
  network.initialise(parameters, 1);
  const Batch batch = make_batch(kImages, kSmall);
  const int cuts[] = {0, 4, 4, 8, kImages};  // the second micro-batch is empty
  std::vector<float> expected;
  std::vector<float> sum(network.parameter_count(), -1.0F);
  for (int part = 0; part < 4; ++part) {
    run_forward(network, parameters, batch, cuts[part], cuts[part + 1], 1.0 / kImages);
    const auto how = part == 0 ? GradientSum::start : GradientSum::add;
    for (int layer = kLast; layer >= 0; --layer) network.backward(layer, parameters, sum, how);
    Network<float> another(kSmall, 5);
    const auto own = gradient_of(another, parameters, batch, cuts[part], cuts[part + 1], 1.0 / kImages);
    if (part == 0) {
      expected = own;
    } else {
      for (std::size_t i = 0; i < own.size(); ++i) expected[i] += own[i];
    }
  }
  EXPECT_EQ(sum, expected);
  EXPECT_NE(sum, gradient_of(network, parameters, batch, 0, kImages, 1.0 / kImages))
      << "one pass over all images rounds as several do: the comparison above would see no mistake";
}

TEST(Network, InitialisationDependsOnTheSeedAlone) {
  Network<float> network(kSmall, 1);
  std::vector<float> first(network.parameter_count());
  std::vector<float> second(network.parameter_count(), 9.0F);
  network.initialise(first, 42);
  network.initialise(second, 42);
  EXPECT_EQ(first, second);
  network.initialise(second, 43);
  EXPECT_NE(first, second);
}

TEST(Network, ScoreCountsCorrectAnswersAndLoss) {
  Network<double> network(kSmall, 2);
  std::vector<double> parameters(
      network.parameter_count());  // all zero: uniform probabilities, class 0 first
  Batch batch = make_batch(2, kSmall);
  batch.labels = {0, 2};
  const BatchScore score = run_forward(network, parameters, batch, 0, 2, 1.0);
  EXPECT_NEAR(score.loss, 2 * std::log(4.0), 1e-12);
  EXPECT_EQ(score.correct, 1);
}

}  // namespace
}  // namespace train_fashion

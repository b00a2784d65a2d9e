// SPDX-License-Identifier: Apache-2.0
#include "evaluate.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace train_fashion {

std::int64_t evaluate(Network<float>& network, std::span<const float> parameters, const FashionData& data,
                      Share share) {
  std::int64_t correct = 0;
  std::vector<std::uint32_t> images;
  std::vector<std::uint8_t> labels(static_cast<std::size_t>(network.max_images()));
  for (int begin = share.begin; begin < share.end; begin += network.max_images()) {
    const int count = std::min(network.max_images(), share.end - begin);
    images.resize(static_cast<std::size_t>(count));
    std::iota(images.begin(), images.end(), static_cast<std::uint32_t>(begin));
    data.gather(images, network.input(), labels);
    network.forward(parameters, count);
    correct += network.score(labels, 1.0F).correct;
  }
  return correct;
}

}  // namespace train_fashion

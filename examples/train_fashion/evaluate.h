// SPDX-License-Identifier: Apache-2.0
// Testing parameters on images.
#pragma once

#include <cstdint>
#include <span>

#include "fashion_data.h"
#include "network.h"
#include "sampler.h"

namespace train_fashion {

/// Correct answers of the network on the share's images.
std::int64_t evaluate(Network<float>& network, std::span<const float> parameters, const FashionData& data,
                      Share share);

}  // namespace train_fashion

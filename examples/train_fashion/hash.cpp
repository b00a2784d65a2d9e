// SPDX-License-Identifier: Apache-2.0
#include "hash.h"

#include <xxhash.h>

namespace train_fashion {

std::uint64_t hash_of(std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace train_fashion

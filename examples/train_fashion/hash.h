// SPDX-License-Identifier: Apache-2.0
// A 64-bit hash (XXH3) to compare parameters and outcomes by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace train_fashion {

std::uint64_t hash_of(std::span<const std::byte> bytes) noexcept;

template <class T>
std::uint64_t hash_of(std::span<const T> values) noexcept {
  return hash_of(std::as_bytes(values));
}

}  // namespace train_fashion

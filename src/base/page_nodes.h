// SPDX-License-Identifier: Apache-2.0
// On which NUMA nodes pages lie.
#pragma once

#include <cstdint>
#include <map>

namespace tugline::base {

/// Of the pages of a mapping that this process has touched: how many lie on each node, by the system's number
/// of it; under -1 those that are not resident or that the kernel says nothing of. Thread-safe.
std::map<int, std::uint64_t> pages_by_node(const void* address, std::uint64_t bytes);

}  // namespace tugline::base

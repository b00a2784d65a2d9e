// SPDX-License-Identifier: Apache-2.0
// Where ranks run, and where their memory lies.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "doctor/finding.h"
#include "topology/topology.h"

namespace tugline::cli {

/// Populates some shared memory from one of these processors: pages by NUMA node, as base::pages_by_node.
using PageProbe = std::function<std::map<int, std::uint64_t>(const std::vector<int>& os_processors)>;
std::map<int, std::uint64_t> pages_populated_on(const std::vector<int>& os_processors);

/// What there is to say of `ranks` ranks that are placed on `machine`, one rank of each node being tried.
Finding placement_on(const topology::Topology& machine, int ranks, const PageProbe& probe);

}  // namespace tugline::cli

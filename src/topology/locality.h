// SPDX-License-Identifier: Apache-2.0
// The NUMA node and the last-level cache in which a set of processors lies.
#pragma once

#include <optional>
#include <vector>

#include "topology/topology.h"

namespace tugline::topology {

struct Locality {
  std::optional<int> numa_node;   ///< its number for the system; none: several, or a machine without
  std::optional<int> last_cache;  ///< position in Topology::caches; none: several, or a machine without
  friend bool operator==(const Locality&, const Locality&) = default;
};

/// Where all of `os_processors` (numbers that affinity masks use) lie. None of both for an empty set, or when
/// the topology does not know one of them.
Locality locality_of(const Topology& topology, const std::vector<int>& os_processors);

}  // namespace tugline::topology

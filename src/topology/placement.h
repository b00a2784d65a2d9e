// SPDX-License-Identifier: Apache-2.0
// Which processors each rank of a host gets, and the links between ranks placed so.
#pragma once

#include <vector>

#include "topology/topology.h"

namespace tugline::topology {

struct RankPlace {
  std::vector<int> cores;          ///< positions in Topology::cores
  std::vector<int> os_processors;  ///< usable processors, by the numbers that affinity masks use
  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

/// Compact placement of ranks 0 .. ranks-1 on the usable cores: neighbours in rank are neighbours on the
/// machine, and no rank spans two NUMA nodes if there are at least as many ranks as nodes. Up to one rank per
/// core each has cores of its own; up to one per processor each has processors of its own; beyond that the
/// ranks of a node share all of it, so that the kernel can balance them. Throws Error{invalid_argument} for
/// ranks < 1.
std::vector<RankPlace> place_compact(const Topology& topology, int ranks);

/// Adds a host device for each place, numbered from 0, and links them all: devices[i] of the result is rank
/// i's. Existing devices and links are replaced. `uuids` may be empty.
void attach_host_devices(Topology& topology, const std::vector<RankPlace>& places,
                         const std::vector<std::string>& uuids = {});

}  // namespace tugline::topology

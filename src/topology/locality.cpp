// SPDX-License-Identifier: Apache-2.0
#include "topology/locality.h"

#include <algorithm>

namespace tugline::topology {

Locality locality_of(const Topology& topology, const std::vector<int>& os_processors) {
  std::vector<int> cores;
  for (const int wanted : os_processors) {
    const auto found = std::find_if(topology.processors.begin(), topology.processors.end(),
                                    [&](const Processor& one) { return one.os_index == wanted; });
    if (found == topology.processors.end()) return {};
    cores.push_back(found->core);
  }
  const auto holds_all = [&](const std::vector<int>& holder) {
    return std::all_of(cores.begin(), cores.end(), [&](int core) {
      return std::find(holder.begin(), holder.end(), core) != holder.end();
    });
  };
  Locality locality;
  if (cores.empty()) return locality;
  for (const NumaNode& node : topology.numa_nodes)
    if (!locality.numa_node && holds_all(node.cores)) locality.numa_node = node.os_index;
  int last_level = 0;
  for (const Cache& cache : topology.caches) last_level = std::max(last_level, cache.level);
  for (std::size_t i = 0; i < topology.caches.size(); ++i)
    if (topology.caches[i].level == last_level && holds_all(topology.caches[i].cores))
      locality.last_cache = static_cast<int>(i);
  return locality;
}

}  // namespace tugline::topology

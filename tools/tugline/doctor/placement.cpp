// SPDX-License-Identifier: Apache-2.0
// Where ranks run that `--bind numa` places, and whether the pages that they populate lie on their NUMA node.
#include "doctor/placement.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <thread>

#include "base/count.h"
#include "base/page_nodes.h"
#include "base/shared_memory.h"
#include "topology/locality.h"
#include "topology/machine.h"
#include "topology/placement.h"
#include "tugline/error.h"

namespace tugline::cli {

std::map<int, std::uint64_t> pages_populated_on(const std::vector<int>& os_processors) {
  constexpr std::uint64_t kBytes = 256 << 10;
  std::map<int, std::uint64_t> pages;
  std::thread([&] {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int processor : os_processors) CPU_SET(static_cast<std::size_t>(processor), &set);
    // What cannot be bound populates nothing: no page is seen.
    if (::sched_setaffinity(0, sizeof set, &set) != 0) return;
    try {
      const auto memory = base::create_sealed_memfd("tugline doctor", kBytes);
      const base::Mapping mapping(memory.get(), kBytes, base::Access::read_write);
      base::populate(mapping.data(), kBytes);
      pages = base::pages_by_node(mapping.data(), kBytes);
    } catch (const Error&) {
      pages.clear();
    }
  }).join();
  return pages;
}

Finding placement_on(const topology::Topology& machine, int ranks, const PageProbe& probe) {
  Finding finding{"placement", Level::ok, "", ""};
  const auto places = topology::place_compact(machine, ranks);
  const auto nodes = std::count_if(machine.numa_nodes.begin(), machine.numa_nodes.end(),
                                   [](const topology::NumaNode& node) { return !node.cores.empty(); });
  std::uint64_t near = 0;
  std::uint64_t all = 0;
  int spanning = 0;
  std::string elsewhere;
  std::set<int> tried;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const auto own = topology::locality_of(machine, places[rank].os_processors).numa_node;
    if (!own) ++spanning;
    if (!own || !tried.insert(*own).second) continue;  // one rank of each node tells
    for (const auto& [node, pages] : probe(places[rank].os_processors)) {
      all += pages;
      if (node == *own) near += pages;
      if (node != *own && elsewhere.empty())
        elsewhere = fmt::format("; of rank {}, {} lie {}", rank, base::counted(pages, "page"),
                                node < 0 ? "nowhere that the kernel tells"
                                         : fmt::format("on node {} in place of node {}", node, *own));
    }
  }
  finding.evidence = fmt::format("{} on {}{}: {} of {} pages that ranks populate lie on their rank's node{}",
                                 base::counted(ranks, "rank"), base::counted(nodes, "NUMA node"),
                                 spanning > 0 ? fmt::format(" ({} span several)", spanning) : std::string(),
                                 near, all, elsewhere);
  if (near == all && all > 0) return finding;
  finding.level = Level::note;
  finding.fix = tried.empty() ? "start as many ranks as there are nodes, or more, so that none spans two"
                              : "end a memory policy (numactl, cpuset.mems) that ranks inherit, or give that "
                                "node room: `numactl -H` "
                                "shows it";
  return finding;
}

std::vector<Finding> check_placement(int ranks) {
  try {
    return {placement_on(topology::this_machine(), ranks, pages_populated_on)};
  } catch (const Error& error) {
    return {{"placement", Level::serious, error.what_failed(), error.what_to_do()}};
  }
}

}  // namespace tugline::cli

// SPDX-License-Identifier: Apache-2.0
#include "topology/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace tugline::topology {
namespace {

// Assumed until measured: a core's copy bandwidth out of another core's cache, and the time until a flag that
// one core raises is seen by another that polls it; typical of server processors since 2019.
struct Assumption {
  double bytes_per_second;
  double latency_seconds;
};
Assumption assumed(LinkKind kind) {
  switch (kind) {
    case LinkKind::shared_cache:
      return {12e9, 80e-9};
    case LinkKind::same_numa_node:
      return {9e9, 120e-9};
    case LinkKind::across_numa_nodes:
      return {6e9, 250e-9};
  }
  return {1e9, 1e-6};
}

// Part `part` of `parts` of a list, sizes as equal as possible.
std::vector<int> piece(const std::vector<int>& list, std::size_t part, std::size_t parts) {
  const auto begin = static_cast<std::ptrdiff_t>(list.size() * part / parts);
  const auto end = static_cast<std::ptrdiff_t>(list.size() * (part + 1) / parts);
  return {list.begin() + begin, list.begin() + end};
}

// How many of `total` fall to each weight: by largest remainder, so that no share exceeds its weight while
// total <= sum of the weights.
std::vector<std::size_t> apportion(std::size_t total, const std::vector<std::size_t>& weights) {
  const std::size_t sum = std::accumulate(weights.begin(), weights.end(), std::size_t{0});
  std::vector<std::size_t> shares;
  std::vector<std::pair<std::size_t, std::size_t>> remainders;  // and position
  std::size_t given = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    shares.push_back(total * weights[i] / sum);
    remainders.emplace_back(total * weights[i] % sum, i);
    given += shares.back();
  }
  std::stable_sort(remainders.begin(), remainders.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (std::size_t i = 0; given < total; ++i, ++given) ++shares[remainders[i].second];
  return shares;
}

class Placer {
 public:
  explicit Placer(const Topology& topology) : topology_(topology), cores_(usable_core_list(topology)) {
    nodes_.resize(topology.numa_nodes.size());
    for (int core : cores_) nodes_[static_cast<std::size_t>(core_at(core).numa_node)].push_back(core);
    std::erase_if(nodes_, [](const std::vector<int>& node) { return node.empty(); });
    for (const auto& node : nodes_) {
      for (int core : node) {
        for (int processor : core_at(core).processors) {
          if (topology.processors[static_cast<std::size_t>(processor)].usable)
            processors_.push_back(processor);
        }
      }
    }
  }

  std::vector<RankPlace> place(std::size_t ranks) const {
    if (ranks > processors_.size()) return share_nodes(ranks);
    if (ranks > cores_.size()) return cut(ranks, processors_of(nodes_), true);
    return cut(ranks, nodes_, false);
  }

 private:
  const Core& core_at(int core) const { return topology_.cores[static_cast<std::size_t>(core)]; }

  std::vector<int> usable_processors(const std::vector<int>& cores) const {
    std::vector<int> found;
    for (int core : cores) {
      for (int processor : core_at(core).processors) {
        if (topology_.processors[static_cast<std::size_t>(processor)].usable) found.push_back(processor);
      }
    }
    return found;
  }
  std::vector<std::vector<int>> processors_of(const std::vector<std::vector<int>>& nodes) const {
    std::vector<std::vector<int>> all;
    for (const auto& node : nodes) all.push_back(usable_processors(node));
    return all;
  }

  RankPlace of_processors(const std::vector<int>& processors) const {
    RankPlace place;
    for (int processor : processors) {
      const Processor& found = topology_.processors[static_cast<std::size_t>(processor)];
      place.os_processors.push_back(found.os_index);
      if (place.cores.empty() || place.cores.back() != found.core) place.cores.push_back(found.core);
    }
    return place;
  }

  // Cuts each node's list (of cores or processors) into pieces, one per rank. Where some node would get no
  // rank, nodes are not respected: its cores would lie idle.
  std::vector<RankPlace> cut(std::size_t ranks, const std::vector<std::vector<int>>& nodes,
                             bool are_processors) const {
    std::vector<std::vector<int>> lists = nodes;
    std::vector<std::size_t> shares = apportion(ranks, sizes_of(nodes));
    if (std::count(shares.begin(), shares.end(), std::size_t{0}) > 0) {
      std::vector<int> joined;
      for (const auto& node : nodes) joined.insert(joined.end(), node.begin(), node.end());
      lists = {joined};
      shares = {ranks};
    }
    std::vector<RankPlace> places;
    for (std::size_t node = 0; node < lists.size(); ++node) {
      for (std::size_t part = 0; part < shares[node]; ++part) {
        const std::vector<int> own = piece(lists[node], part, shares[node]);
        places.push_back(of_processors(are_processors ? own : usable_processors(own)));
      }
    }
    return places;
  }

  std::vector<RankPlace> share_nodes(std::size_t ranks) const {
    const auto processors = processors_of(nodes_);
    const auto shares = apportion(ranks, sizes_of(processors));
    std::vector<RankPlace> places;
    for (std::size_t node = 0; node < processors.size(); ++node) {
      places.insert(places.end(), shares[node], of_processors(processors[node]));
    }
    return places;
  }

  static std::vector<std::size_t> sizes_of(const std::vector<std::vector<int>>& lists) {
    std::vector<std::size_t> sizes;
    for (const auto& list : lists) sizes.push_back(list.size());
    return sizes;
  }

  const Topology& topology_;
  std::vector<int> cores_;
  std::vector<std::vector<int>> nodes_;  // usable cores of each NUMA node that has any
  std::vector<int> processors_;
};

bool within(const std::vector<int>& cores, const std::vector<int>& sorted) {
  return std::all_of(cores.begin(), cores.end(),
                     [&](int core) { return std::binary_search(sorted.begin(), sorted.end(), core); });
}

LinkKind kind_between(const Topology& topology, const std::vector<int>& one, const std::vector<int>& two) {
  for (const Cache& cache : topology.caches) {
    if (within(one, cache.cores) && within(two, cache.cores)) return LinkKind::shared_cache;
  }
  for (const NumaNode& node : topology.numa_nodes) {
    if (within(one, node.cores) && within(two, node.cores)) return LinkKind::same_numa_node;
  }
  return LinkKind::across_numa_nodes;
}

}  // namespace

std::vector<RankPlace> place_compact(const Topology& topology, int ranks) {
  const Placer placer(topology);
  if (ranks < 1 || usable_core_list(topology).empty()) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("placement of {} ranks on {} usable cores", ranks, usable_core_list(topology).size()),
        "ask for at least one rank, and allow at least one core", {.operation = "placement of ranks"});
  }
  return placer.place(static_cast<std::size_t>(ranks));
}

void attach_host_devices(Topology& topology, const std::vector<RankPlace>& places,
                         const std::vector<std::string>& uuids) {
  topology.devices.clear();
  topology.links.clear();
  for (std::size_t i = 0; i < places.size(); ++i) {
    topology.devices.push_back({DeviceKind::host, static_cast<int>(i),
                                i < uuids.size() ? uuids[i] : std::string(), places[i].cores});
  }
  for (std::size_t from = 0; from < places.size(); ++from) {
    for (std::size_t to = 0; to < places.size(); ++to) {
      if (from == to) continue;
      const LinkKind kind = kind_between(topology, places[from].cores, places[to].cores);
      const Assumption figures = assumed(kind);
      topology.links.push_back({static_cast<int>(from), static_cast<int>(to), kind, figures.bytes_per_second,
                                figures.latency_seconds});
    }
  }
}

}  // namespace tugline::topology

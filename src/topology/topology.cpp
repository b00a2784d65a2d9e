// SPDX-License-Identifier: Apache-2.0
#include "topology/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace tugline::topology {
namespace {

[[noreturn]] void refuse(const Topology& topology, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("topology of {}: {}", topology.origin, what),
              "repair the file, or write it anew on the machine it describes",
              {.operation = "check of a topology"});
}

void check_position(const Topology& topology, const char* what, int position, std::size_t size,
                    const char* of) {
  if (position >= 0 && static_cast<std::size_t>(position) < size) return;
  refuse(topology, fmt::format("{} names {} {}, of {}", what, of, position, size));
}

void check_cores(const Topology& topology, const char* what, const std::vector<int>& cores) {
  for (int core : cores) check_position(topology, what, core, topology.cores.size(), "core");
}

}  // namespace

std::string_view name_of(LinkKind kind) noexcept {
  switch (kind) {
    case LinkKind::shared_cache:
      return "shared_cache";
    case LinkKind::same_numa_node:
      return "same_numa_node";
    case LinkKind::across_numa_nodes:
      return "across_numa_nodes";
  }
  return "?";
}

std::vector<int> usable_core_list(const Topology& topology) {
  std::vector<int> usable;
  for (std::size_t i = 0; i < topology.cores.size(); ++i) {
    const auto& processors = topology.cores[i].processors;
    if (std::any_of(processors.begin(), processors.end(),
                    [&](int p) { return topology.processors[static_cast<std::size_t>(p)].usable; })) {
      usable.push_back(static_cast<int>(i));
    }
  }
  return usable;
}

int usable_cores(const Topology& topology) {
  int cores = static_cast<int>(usable_core_list(topology).size());
  if (topology.processor_limit > 0) {
    cores = std::min(cores, static_cast<int>(std::ceil(topology.processor_limit)));
  }
  return std::max(cores, 1);
}

void validate(const Topology& topology) {
  if (topology.cores.empty()) refuse(topology, "it has no cores");
  if (topology.numa_nodes.empty()) refuse(topology, "it has no memory");
  std::vector<int> owner(topology.processors.size(), -1);
  for (std::size_t i = 0; i < topology.cores.size(); ++i) {
    const Core& core = topology.cores[i];
    check_position(topology, "a core", core.package, topology.packages.size(), "package");
    check_position(topology, "a core", core.numa_node, topology.numa_nodes.size(), "NUMA node");
    if (core.processors.empty()) refuse(topology, fmt::format("core {} has no processor", i));
    for (int processor : core.processors) {
      check_position(topology, "a core", processor, topology.processors.size(), "processor");
      int& known = owner[static_cast<std::size_t>(processor)];
      if (known >= 0)
        refuse(topology, fmt::format("processor {} belongs to cores {} and {}", processor, known, i));
      known = static_cast<int>(i);
    }
  }
  std::set<int> os_indices;
  for (std::size_t i = 0; i < topology.processors.size(); ++i) {
    const Processor& processor = topology.processors[i];
    if (processor.core != owner[i]) {
      refuse(topology,
             fmt::format("processor {} says core {}, but core {} has it", i, processor.core, owner[i]));
    }
    if (processor.os_index < 0 || !os_indices.insert(processor.os_index).second) {
      refuse(topology,
             fmt::format("processor {} has number {}, which is negative or taken", i, processor.os_index));
    }
  }
  for (const NumaNode& node : topology.numa_nodes) check_cores(topology, "a NUMA node", node.cores);
  for (const Cache& cache : topology.caches) check_cores(topology, "a cache", cache.cores);
  for (const DevicePlace& device : topology.devices) check_cores(topology, "a device", device.cores);
  for (const Link& link : topology.links) {
    check_position(topology, "a link", link.from, topology.devices.size(), "device");
    check_position(topology, "a link", link.to, topology.devices.size(), "device");
    if (link.from == link.to)
      refuse(topology, fmt::format("a link leads from device {} to itself", link.from));
    if (!(link.bytes_per_second > 0) || !(link.latency_seconds >= 0)) {
      refuse(topology, fmt::format("the link from device {} to {} has {} bytes/s and {} s", link.from,
                                   link.to, link.bytes_per_second, link.latency_seconds));
    }
  }
  if (topology.processor_limit < 0) refuse(topology, "its processor limit is negative");
}

}  // namespace tugline::topology

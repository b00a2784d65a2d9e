// SPDX-License-Identifier: Apache-2.0
// What the machine is made of, which part of it this process may use, and how its devices are linked. Plain
// data: read from the machine, from a file, or made up for a test.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tugline/device.h"

namespace tugline::topology {

/// A hardware thread.
struct Processor {
  int os_index = 0;    ///< the number that affinity masks use
  int core = 0;        ///< position in Topology::cores
  bool usable = true;  ///< this process may run here: affinity and cpuset
  friend bool operator==(const Processor&, const Processor&) = default;
};

struct Core {
  int package = 0;              ///< position in Topology::packages
  int numa_node = 0;            ///< position in Topology::numa_nodes; the nearest, where several are local
  std::vector<int> processors;  ///< positions in Topology::processors
  friend bool operator==(const Core&, const Core&) = default;
};

struct Package {
  std::string model;  ///< the processor's name, empty if unknown
  friend bool operator==(const Package&, const Package&) = default;
};

struct NumaNode {
  int os_index = 0;
  std::uint64_t memory_bytes = 0;
  std::vector<int> cores;  ///< positions in Topology::cores; none for memory without processors
  friend bool operator==(const NumaNode&, const NumaNode&) = default;
};

/// A data or unified cache.
struct Cache {
  int level = 0;
  std::uint64_t bytes = 0;
  int line_bytes = 0;
  std::vector<int> cores;  ///< that share it
  friend bool operator==(const Cache&, const Cache&) = default;
};

/// A device and where it is.
struct DevicePlace {
  DeviceKind kind = DeviceKind::host;
  int index = 0;
  std::string uuid;
  std::vector<int> cores;  ///< a host device: where its rank runs; another: the cores near to it
  friend bool operator==(const DevicePlace&, const DevicePlace&) = default;
};

/// What two devices meet in, nearest first.
enum class LinkKind : std::uint8_t { shared_cache, same_numa_node, across_numa_nodes };
std::string_view name_of(LinkKind kind) noexcept;

/// One direction of the path between two devices. The figures are assumptions until something measures them.
struct Link {
  int from = 0;  ///< position in Topology::devices
  int to = 0;
  LinkKind kind = LinkKind::same_numa_node;
  double bytes_per_second = 0;
  double latency_seconds = 0;  ///< a flag raised until the waiting side sees it
  friend bool operator==(const Link&, const Link&) = default;
};

struct Topology {
  std::string origin;  ///< "this machine", or what it was made from
  std::vector<Package> packages;
  std::vector<NumaNode> numa_nodes;
  std::vector<Cache> caches;
  std::vector<Core> cores;  ///< neighbours in this order are near to each other
  std::vector<Processor> processors;
  double processor_limit = 0;  ///< processors' worth of time that the control group grants; 0: no limit
  std::vector<DevicePlace> devices;
  std::vector<Link> links;
  std::string hwloc_xml;  ///< everything hwloc knows, for its own tools; may be empty
  friend bool operator==(const Topology&, const Topology&) = default;
};

/// Cores with at least one usable processor, in order.
std::vector<int> usable_core_list(const Topology& topology);
/// How many ranks can spin at once without taking each other's core: usable cores, bounded by the processor
/// limit (rounded up), at least 1.
int usable_cores(const Topology& topology);

/// Checks that positions are in range, every processor belongs to one core and every device link to two
/// devices. Throws Error{invalid_argument} that names `origin` and the first thing that is wrong.
void validate(const Topology& topology);

}  // namespace tugline::topology

// SPDX-License-Identifier: Apache-2.0
// The only file that includes hwloc.h.
#include "topology/machine.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "base/cgroup.h"
#include "base/settings.h"
#include "topology/file.h"

namespace tugline::topology {
namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const noexcept { hwloc_topology_destroy(topology); }
};
using Handle = std::unique_ptr<hwloc_topology, Destroy>;

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const noexcept { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

[[noreturn]] void fail(ErrorCode code, const std::string& what, int native) {
  throw Error(code, what,
              code == ErrorCode::invalid_argument
                  ? "see hwloc(7) for synthetic descriptions, lstopo(1) for XML"
                  : "check that /sys is mounted and readable",
              {.operation = "reading a topology", .native_code = native});
}

Handle make() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) fail(ErrorCode::system, "hwloc could not start", errno);
  Handle handle(raw);
  // Processors outside the cpuset are wanted too: a topology file describes the machine, not the container.
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  return handle;
}

std::vector<hwloc_obj_t> all_of(hwloc_topology_t topology, hwloc_obj_type_t type) {
  std::vector<hwloc_obj_t> found;
  for (hwloc_obj_t object = nullptr;
       (object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr;) {
    found.push_back(object);
  }
  return found;
}

std::vector<int> cores_in(const std::vector<hwloc_obj_t>& cores, hwloc_const_cpuset_t set) {
  std::vector<int> found;
  for (std::size_t i = 0; i < cores.size(); ++i) {
    if (hwloc_bitmap_intersects(cores[i]->cpuset, set) != 0) found.push_back(static_cast<int>(i));
  }
  return found;
}

// Position of the first object that shares processors with the core; 0 where nothing does, as on machines
// that describe neither packages nor memory.
int holder_of(const std::vector<hwloc_obj_t>& objects, hwloc_obj_t core) {
  for (std::size_t i = 0; i < objects.size(); ++i) {
    if (hwloc_bitmap_intersects(objects[i]->cpuset, core->cpuset) != 0) return static_cast<int>(i);
  }
  return 0;
}

void add_caches(Topology& result, hwloc_topology_t topology, const std::vector<hwloc_obj_t>& cores) {
  for (hwloc_obj_type_t type :
       {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L5CACHE}) {
    for (hwloc_obj_t object : all_of(topology, type)) {
      result.caches.push_back({static_cast<int>(object->attr->cache.depth), object->attr->cache.size,
                               static_cast<int>(object->attr->cache.linesize),
                               cores_in(cores, object->cpuset)});
    }
  }
}

std::string export_xml(hwloc_topology_t topology) {
  char* text = nullptr;
  int bytes = 0;
  if (hwloc_topology_export_xmlbuffer(topology, &text, &bytes, 0) != 0) {
    fail(ErrorCode::system, "hwloc could not write the topology as XML", errno);
  }
  std::string xml(text, bytes > 0 ? static_cast<std::size_t>(bytes) - 1 : 0);  // without the final zero
  hwloc_free_xmlbuffer(topology, text);
  return xml;
}

Topology convert(hwloc_topology_t topology, hwloc_const_cpuset_t usable, std::string origin) {
  Topology result;
  result.origin = std::move(origin);
  const auto packages = all_of(topology, HWLOC_OBJ_PACKAGE);
  const auto nodes = all_of(topology, HWLOC_OBJ_NUMANODE);
  const auto processors = all_of(topology, HWLOC_OBJ_PU);
  auto cores = all_of(topology, HWLOC_OBJ_CORE);
  if (cores.empty()) cores = processors;  // some machines do not say which threads share a core
  for (hwloc_obj_t package : packages) {
    const char* model = hwloc_obj_get_info_by_name(package, "CPUModel");
    result.packages.push_back({model != nullptr ? model : ""});
  }
  if (packages.empty()) result.packages.emplace_back();
  for (hwloc_obj_t node : nodes) {
    result.numa_nodes.push_back(
        {static_cast<int>(node->os_index), node->attr->numanode.local_memory, cores_in(cores, node->cpuset)});
  }
  for (hwloc_obj_t core : cores) {
    const int position = static_cast<int>(result.cores.size());
    Core added{holder_of(packages, core), holder_of(nodes, core), {}};
    for (hwloc_obj_t processor : processors) {
      if (hwloc_bitmap_isset(core->cpuset, processor->os_index) == 0) continue;
      added.processors.push_back(static_cast<int>(result.processors.size()));
      result.processors.push_back({static_cast<int>(processor->os_index), position,
                                   hwloc_bitmap_isset(usable, processor->os_index) != 0});
    }
    result.cores.push_back(std::move(added));
  }
  add_caches(result, topology, cores);
  result.hwloc_xml = export_xml(topology);
  validate(result);
  return result;
}

}  // namespace

Topology read_machine() {
  Handle handle = make();
  if (hwloc_topology_load(handle.get()) != 0)
    fail(ErrorCode::system, "hwloc could not read this machine", errno);
  Bitmap usable(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(handle.get())));
  Bitmap bound(hwloc_bitmap_alloc());
  if (usable == nullptr || bound == nullptr) fail(ErrorCode::system, "hwloc had no memory for a set", ENOMEM);
  // The main thread's affinity stands for the process: other threads may be pinned more narrowly on purpose.
  if (hwloc_get_proc_cpubind(handle.get(), ::getpid(), bound.get(), HWLOC_CPUBIND_THREAD) == 0) {
    hwloc_bitmap_and(usable.get(), usable.get(), bound.get());
  }
  Topology result = convert(handle.get(), usable.get(), "this machine");
  result.processor_limit = base::cgroup_processor_limit().value_or(0);
  return result;
}

const Topology& this_machine() {
  static const Topology* machine = [] {
    const auto& path = base::settings().topology;
    return new Topology(path.empty() ? read_machine() : load_topology(path));
  }();
  return *machine;
}

int usable_cores() {
  return usable_cores(this_machine());
}

Topology read_synthetic(const std::string& description) {
  Handle handle = make();
  if (hwloc_topology_set_synthetic(handle.get(), description.c_str()) != 0 ||
      hwloc_topology_load(handle.get()) != 0) {
    fail(ErrorCode::invalid_argument,
         fmt::format("hwloc does not understand the synthetic machine '{}'", description), 0);
  }
  return convert(handle.get(), hwloc_topology_get_allowed_cpuset(handle.get()), "synthetic " + description);
}

Topology read_hwloc_xml(const std::string& xml, const std::string& origin) {
  Handle handle = make();
  if (hwloc_topology_set_xmlbuffer(handle.get(), xml.c_str(), static_cast<int>(xml.size()) + 1) != 0 ||
      hwloc_topology_load(handle.get()) != 0) {
    fail(ErrorCode::invalid_argument, fmt::format("hwloc does not understand the XML of {}", origin), 0);
  }
  return convert(handle.get(), hwloc_topology_get_allowed_cpuset(handle.get()), origin);
}

}  // namespace tugline::topology

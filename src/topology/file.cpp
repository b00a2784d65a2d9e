// SPDX-License-Identifier: Apache-2.0
#include "topology/file.h"

#include <fmt/format.h>

#include <cerrno>
#include <limits>

#include "base/file.h"
#include "base/json.h"
#include "topology/machine.h"

namespace tugline::topology {
namespace {

using base::Json;

constexpr std::string_view kFormat = "tugline-topology";
constexpr int kVersion = 1;

[[noreturn]] void refuse(const std::string& origin, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", origin, what),
              "write the file anew on the machine it describes", {.operation = "reading a topology file"});
}

[[noreturn]] void fail_to_write(const std::string& path, int native) {
  const ErrorCode code = native == ENOENT                      ? ErrorCode::not_found
                         : native == EACCES || native == EPERM ? ErrorCode::permission_denied
                                                               : ErrorCode::system;
  throw Error(
      code,
      fmt::format("the topology file {} cannot be written: {}", path, base::why_not_written(path, native)),
      "check the path and its permissions", {.operation = "topology file", .native_code = native});
}

int to_int(const Json& value) {
  const std::int64_t number = value.as_int();
  if (number < std::numeric_limits<int>::min() || number > std::numeric_limits<int>::max()) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{} where a small number is expected", number),
                "repair the file", {.operation = "reading a topology file"});
  }
  return static_cast<int>(number);
}

std::vector<int> to_ints(const Json& list) {
  std::vector<int> numbers;
  for (const Json& value : list.items()) numbers.push_back(to_int(value));
  return numbers;
}

template <class Call>
void for_each_item(const Json& root, std::string_view key, Call&& call) {
  if (const Json* list = root.find(key)) {
    for (const Json& item : list->items()) call(item);
  }
}

template <class Kind>
Kind to_kind(const Json& value, std::initializer_list<Kind> kinds, const std::string& origin) {
  for (Kind kind : kinds) {
    if (value.as_string() == name_of(kind)) return kind;
  }
  refuse(origin, fmt::format("'{}' is no kind that this version knows", value.as_string()));
}

template <class List, class Call>
Json array_from(const List& list, Call&& call) {
  Json array = Json::array();
  for (const auto& element : list) {
    Json added = Json::object();
    call(element, added);
    array.push_back(std::move(added));
  }
  return array;
}

Json cores_of(const Topology& topology) {
  return array_from(topology.cores, [&](const Core& core, Json& json) {
    json["package"] = core.package;
    json["numa_node"] = core.numa_node;
    json["processors"] = array_from(core.processors, [&](int position, Json& processor) {
      processor["os_index"] = topology.processors[static_cast<std::size_t>(position)].os_index;
      processor["usable"] = topology.processors[static_cast<std::size_t>(position)].usable;
    });
  });
}

void read_cores(const Json& root, Topology& topology) {
  for_each_item(root, "cores", [&](const Json& item) {
    Core core{to_int(item.at("package")), to_int(item.at("numa_node")), {}};
    for (const Json& processor : item.at("processors").items()) {
      core.processors.push_back(static_cast<int>(topology.processors.size()));
      const Json* usable = processor.find("usable");
      topology.processors.push_back({to_int(processor.at("os_index")),
                                     static_cast<int>(topology.cores.size()),
                                     usable == nullptr || usable->as_bool()});
    }
    topology.cores.push_back(std::move(core));
  });
}

std::uint64_t to_bytes(const Json& value, const std::string& origin) {
  if (value.as_int() < 0) refuse(origin, fmt::format("{} bytes", value.as_int()));
  return static_cast<std::uint64_t>(value.as_int());
}

void read_devices(const Json& root, Topology& topology) {
  for_each_item(root, "devices", [&](const Json& item) {
    topology.devices.push_back(
        {to_kind(item.at("kind"), {DeviceKind::host, DeviceKind::cuda}, topology.origin),
         to_int(item.at("index")), item.at("uuid").as_string(), to_ints(item.at("cores"))});
  });
  for_each_item(root, "links", [&](const Json& item) {
    topology.links.push_back(
        {to_int(item.at("from")), to_int(item.at("to")),
         to_kind(item.at("kind"),
                 {LinkKind::shared_cache, LinkKind::same_numa_node, LinkKind::across_numa_nodes},
                 topology.origin),
         item.at("bytes_per_second").as_double(), item.at("latency_seconds").as_double()});
  });
}

// The readable part is what counts; XML that says otherwise means that one of them was edited.
void compare_with_xml(const Topology& topology) {
  if (topology.hwloc_xml.empty()) return;
  Topology inside = read_hwloc_xml(topology.hwloc_xml, topology.origin);
  const auto differ = [&](const char* what, std::size_t here, std::size_t there) {
    refuse(topology.origin, fmt::format("its {} do not match its hwloc XML ({} and {})", what, here, there));
  };
  if (inside.packages != topology.packages)
    differ("packages", topology.packages.size(), inside.packages.size());
  if (inside.cores != topology.cores) differ("cores", topology.cores.size(), inside.cores.size());
  if (inside.caches != topology.caches) differ("caches", topology.caches.size(), inside.caches.size());
  if (inside.numa_nodes != topology.numa_nodes) {
    differ("NUMA nodes", topology.numa_nodes.size(), inside.numa_nodes.size());
  }
  for (std::size_t i = 0; i < inside.processors.size(); ++i) {
    if (inside.processors[i].os_index != topology.processors[i].os_index) {
      differ("processors' numbers", static_cast<std::size_t>(topology.processors[i].os_index),
             static_cast<std::size_t>(inside.processors[i].os_index));
    }
  }
}

}  // namespace

std::string dump_topology(const Topology& topology) {
  Json root = Json::object();
  root["format"] = kFormat;
  root["version"] = kVersion;
  root["origin"] = topology.origin;
  root["processor_limit"] = topology.processor_limit;
  root["packages"] = array_from(topology.packages,
                                [](const Package& package, Json& json) { json["model"] = package.model; });
  root["numa_nodes"] = array_from(topology.numa_nodes, [](const NumaNode& node, Json& json) {
    json["os_index"] = node.os_index;
    json["memory_bytes"] = node.memory_bytes;
    json["cores"] = Json::array_of(node.cores);
  });
  root["caches"] = array_from(topology.caches, [](const Cache& cache, Json& json) {
    json["level"] = cache.level;
    json["bytes"] = cache.bytes;
    json["line_bytes"] = cache.line_bytes;
    json["cores"] = Json::array_of(cache.cores);
  });
  root["cores"] = cores_of(topology);
  root["devices"] = array_from(topology.devices, [](const DevicePlace& device, Json& json) {
    json["kind"] = name_of(device.kind);
    json["index"] = device.index;
    json["uuid"] = device.uuid;
    json["cores"] = Json::array_of(device.cores);
  });
  root["links"] = array_from(topology.links, [](const Link& link, Json& json) {
    json["from"] = link.from;
    json["to"] = link.to;
    json["kind"] = name_of(link.kind);
    json["bytes_per_second"] = link.bytes_per_second;
    json["latency_seconds"] = link.latency_seconds;
  });
  if (!topology.hwloc_xml.empty()) root["hwloc_xml"] = topology.hwloc_xml;
  return root.dump(2) + "\n";
}

Topology parse_topology(std::string_view text, const std::string& origin) {
  const Json root = Json::parse(text, origin);
  const Json* format = root.find("format");
  if (format == nullptr || !format->is_string() || format->as_string() != kFormat) {
    refuse(origin, "this is not a topology file (no \"format\": \"tugline-topology\")");
  }
  if (const int version = to_int(root.at("version")); version != kVersion) {
    refuse(origin, fmt::format("it has version {}, this program reads version {}", version, kVersion));
  }
  Topology topology;
  topology.origin = origin;
  if (const Json* limit = root.find("processor_limit")) topology.processor_limit = limit->as_double();
  for_each_item(root, "packages",
                [&](const Json& item) { topology.packages.push_back({item.at("model").as_string()}); });
  for_each_item(root, "numa_nodes", [&](const Json& item) {
    topology.numa_nodes.push_back(
        {to_int(item.at("os_index")), to_bytes(item.at("memory_bytes"), origin), to_ints(item.at("cores"))});
  });
  for_each_item(root, "caches", [&](const Json& item) {
    topology.caches.push_back({to_int(item.at("level")), to_bytes(item.at("bytes"), origin),
                               to_int(item.at("line_bytes")), to_ints(item.at("cores"))});
  });
  read_cores(root, topology);
  read_devices(root, topology);
  if (const Json* xml = root.find("hwloc_xml")) topology.hwloc_xml = xml->as_string();
  validate(topology);
  compare_with_xml(topology);
  return topology;
}

void save_topology(const Topology& topology, const std::string& path) {
  const auto file = base::open_to_write(path, O_CREAT | O_TRUNC, 0666);
  const int reason = file ? base::write_all(file.get(), dump_topology(topology)) : errno;
  if (reason != 0) fail_to_write(path, reason);
}

Topology load_topology(const std::string& path) {
  return parse_topology(base::read_file(path, "the topology file", base::Pipes::refused), path);
}

}  // namespace tugline::topology

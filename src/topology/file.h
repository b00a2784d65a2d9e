// SPDX-License-Identifier: Apache-2.0
// Topology files: JSON that a reader understands, with hwloc's XML inside for its own tools.
#pragma once

#include <string>
#include <string_view>

#include "topology/topology.h"

namespace tugline::topology {

/// The topology as text; parse_topology() gives back an equal one.
std::string dump_topology(const Topology& topology);
/// Reads such a text; hand-written ones may leave hwloc_xml, caches, devices and links out. `origin` (a path)
/// stands in errors and replaces the origin that the text names. Throws Error{invalid_argument} when it is
/// not a topology of a known version, when positions do not fit, or when the XML contradicts the rest.
Topology parse_topology(std::string_view text, const std::string& origin);

/// Throws Error{not_found, permission_denied, system} with the path.
void save_topology(const Topology& topology, const std::string& path);
Topology load_topology(const std::string& path);

}  // namespace tugline::topology

// SPDX-License-Identifier: Apache-2.0
// Reads topologies with hwloc.
#pragma once

#include <string>

#include "topology/topology.h"

namespace tugline::topology {

/// This machine as it is now: all of its processors, with those marked that the calling process may use
/// (affinity of its main thread, cpuset, control group's processor time). No devices yet. Takes milliseconds.
/// Throws Error{system}.
Topology read_machine();

/// The same, or the topology file of the setting `topology`, read once per process. Thread-safe. Throws as
/// read_machine() and load_topology().
const Topology& this_machine();

/// Cores of this machine that this process may use at once; see usable_cores(topology). Uses this_machine(),
/// so it does not follow later changes of affinity. A rank pinned to one core sees 1. Thread-safe.
int usable_cores();

/// A machine described by hwloc's words, for tests: "package:2 numa:1 core:4 pu:2". All usable. Throws
/// Error{invalid_argument}.
Topology read_synthetic(const std::string& description);

/// A machine from hwloc's XML. All allowed processors are usable. Throws Error{invalid_argument}; `origin`
/// stands in the text.
Topology read_hwloc_xml(const std::string& xml, const std::string& origin);

}  // namespace tugline::topology

// SPDX-License-Identifier: Apache-2.0
// How `tugline doctor` words the state of a GPU; for its tests.
#pragma once

#include <string>

#include "doctor/finding.h"
#include "topology/nvml.h"

namespace tugline::cli {

Finding state_finding(const std::string& check, const topology::GpuState& state);

}  // namespace tugline::cli

// SPDX-License-Identifier: Apache-2.0
// The GPUs that the driver shows, or why there are none.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "device/load.h"
#include "doctor/finding.h"
#include "doctor/gpus.h"
#include "tugline/error.h"

namespace tugline::cli {
namespace {

template <class Number>
std::string of(std::optional<Number> value, std::optional<Number> limit, const char* unit) {
  if (!value) return fmt::format("{}: not told", unit);
  return limit ? fmt::format("{:.0f} of {:.0f} {}", static_cast<double>(*value), static_cast<double>(*limit),
                             unit)
               : fmt::format("{:.0f} {}", static_cast<double>(*value), unit);
}

// The states of all GPUs, or one finding that says why they are not known.
std::vector<topology::GpuState> states(std::vector<Finding>& findings) {
  try {
    return topology::read_gpu_states();
  } catch (const Error& error) {
    findings.push_back({"gpu states", Level::note, error.what_failed(), error.what_to_do()});
    return {};
  }
}

}  // namespace

Finding state_finding(const std::string& check, const topology::GpuState& state) {
  std::string evidence = fmt::format("{}, {}", of(state.sm_clock_mhz, state.sm_clock_limit_mhz, "MHz"),
                                     of(state.power_watts, state.power_limit_watts, "W"));
  if (state.temperature_celsius) evidence += fmt::format(", {} C", *state.temperature_celsius);
  if (!state.slowed_by.empty())
    evidence += fmt::format("; clocks are held down by {}", fmt::join(state.slowed_by, ", "));
  const auto active =
      std::count_if(state.links.begin(), state.links.end(), [](const auto& link) { return link.active; });
  evidence += state.links.empty() ? "; no NVLink"
                                  : fmt::format("; {} of {} NVLinks active", active, state.links.size());
  Finding finding{check, Level::ok, std::move(evidence), ""};
  if (state.is_slowed_by_fault) {
    finding.level = Level::note;
    finding.fix =
        "look at cooling, power supply and `nvidia-smi -q -d PERFORMANCE`: this GPU computes more slowly "
        "than others";
  }
  return finding;
}

std::vector<Finding> check_gpus() {
  device::Backend* backend = nullptr;
  try {
    backend = &device::load_cuda();
  } catch (const Error& error) {
    // No fault of the machine: host devices are all that most have.
    return {{"gpus", Level::ok, fmt::format("none is used: {}", error.what_failed()), ""}};
  }
  std::vector<Finding> findings;
  const auto all_states = states(findings);
  for (int i = 0; i < backend->device_count(); ++i) {
    const std::string check = fmt::format("gpu {}", i);
    try {
      const Device& device = backend->device(i);
      const DeviceInfo& info = device.info();
      constexpr double kGiB = 1 << 30;
      findings.push_back({check, Level::ok,
                          fmt::format("{}, {}, {:.1f} of {:.1f} GiB free with a context of this process",
                                      info.name, info.uuid, static_cast<double>(device.free_bytes()) / kGiB,
                                      static_cast<double>(info.memory_bytes) / kGiB),
                          ""});
      const auto state = std::find_if(all_states.begin(), all_states.end(),
                                      [&](const auto& each) { return each.uuid == info.uuid; });
      if (state != all_states.end()) findings.push_back(state_finding(check + " state", *state));
    } catch (const Error& error) {
      findings.push_back({check, Level::note, error.what_failed(), error.what_to_do()});
    }
  }
  return findings;
}

}  // namespace tugline::cli

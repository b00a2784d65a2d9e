// SPDX-License-Identifier: Apache-2.0
// What NVIDIA's management library says of GPUs just now: clocks and what holds them down, power,
// temperature, NVLink. The library is opened at run time and declared here by the few functions that are
// called, whose signatures are its ABI; no header of it is needed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tugline::topology {

/// One NVLink of a GPU.
struct NvLink {
  bool active = false;
  std::optional<std::string> peer_bus_id;  ///< "00000000:1B:00.0" of what is at its other end
};

/// Fields that a GPU or a driver does not tell are empty.
struct GpuState {
  std::string uuid;  ///< as DeviceInfo has it: "GPU-..."
  std::string name;
  std::string bus_id;  ///< "00000000:1B:00.0"
  std::optional<std::uint64_t> memory_total_bytes;
  std::optional<std::uint64_t> memory_used_bytes;  ///< by all processes
  std::optional<unsigned> sm_clock_mhz;
  std::optional<unsigned> sm_clock_limit_mhz;
  std::optional<unsigned> memory_clock_mhz;
  std::optional<double> power_watts;
  std::optional<double> power_limit_watts;
  std::optional<unsigned> temperature_celsius;
  /// What keeps the clocks down, in words; empty when nothing does.
  std::vector<std::string> slowed_by;
  /// Some of it is a fault or a lack of the machine (heat, power, a brake), not idleness or a setting.
  bool is_slowed_by_fault = false;
  std::vector<NvLink> links;  ///< of a GPU that has any
};

/// The state of every GPU that the driver manages, also of those that CUDA_VISIBLE_DEVICES hides. Throws
/// Error{unsupported} that says why there is none to ask: no library, one without a function that is needed,
/// one that does not start. `library`: what is opened. Takes some milliseconds. Thread-safe.
std::vector<GpuState> read_gpu_states(const char* library = "libnvidia-ml.so.1");

}  // namespace tugline::topology

// SPDX-License-Identifier: Apache-2.0
// The GPUs that the driver shows, or why there are none.
#include <fmt/format.h>

#include "device/load.h"
#include "doctor/finding.h"
#include "tugline/error.h"

namespace tugline::cli {

std::vector<Finding> check_gpus() {
  device::Backend* backend = nullptr;
  try {
    backend = &device::load_cuda();
  } catch (const Error& error) {
    // No fault of the machine: host devices are all that most have.
    return {{"gpus", Level::ok, fmt::format("none is used: {}", error.what_failed()), ""}};
  }
  std::vector<Finding> findings;
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
    } catch (const Error& error) {
      findings.push_back({check, Level::note, error.what_failed(), error.what_to_do()});
    }
  }
  return findings;
}

}  // namespace tugline::cli

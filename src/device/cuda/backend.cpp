// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/backend.h"

#include <fmt/format.h>

namespace tugline::device::cuda {

CudaBackend::CudaBackend() {
  int count = 0;
  check(driver().cuDeviceGetCount(&count), "count of devices");
  devices_.resize(static_cast<std::size_t>(count));
}

Device& CudaBackend::device(int index) {
  std::lock_guard lock(mutex_);
  if (index < 0 || index >= device_count()) {
    throw Error(ErrorCode::not_found, fmt::format("no device cuda:{}, there are {}", index, device_count()),
                "name a device that nvidia-smi lists, or look at CUDA_VISIBLE_DEVICES",
                {.operation = "look-up of a device"});
  }
  auto& device = devices_[static_cast<std::size_t>(index)];
  if (device == nullptr) device = std::make_unique<CudaDevice>(index);
  return *device;
}

}  // namespace tugline::device::cuda

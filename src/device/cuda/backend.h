// SPDX-License-Identifier: Apache-2.0
// The GPUs of this process as a backend.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "device/registry.h"

namespace tugline::device::cuda {

/// The devices that the driver shows, each opened (its context started) when first asked for. Thread-safe.
class CudaBackend final : public Backend {
 public:
  /// Throws Error{unsupported} that says why there are none.
  CudaBackend();
  DeviceKind kind() const noexcept override { return DeviceKind::cuda; }
  int device_count() const noexcept override { return static_cast<int>(devices_.size()); }
  Device& device(int index) override;

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<CudaDevice>> devices_;
};

}  // namespace tugline::device::cuda

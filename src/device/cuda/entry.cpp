// SPDX-License-Identifier: Apache-2.0
// What libtugline_cuda.so exports.
#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "device/cuda/backend.h"
#include "device/load.h"
#include "tugline/export.h"

extern "C" TUGLINE_EXPORT tugline::device::Backend* tugline_cuda_backend(const char* version) {
  // The two share classes, not only functions: nothing but the same version fits.
  if (std::strcmp(version, TUGLINE_VERSION) != 0) {
    throw tugline::Error(
        tugline::ErrorCode::unsupported,
        fmt::format("libtugline_cuda.so is of version {}, tugline of {}", TUGLINE_VERSION, version),
        "install both of the same version", {.operation = "loading of the CUDA backend"});
  }
  return std::make_unique<tugline::device::cuda::CudaBackend>().release();
}
static_assert(std::is_same_v<decltype(&tugline_cuda_backend), tugline::device::BackendEntry>);

// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/kernels.h"

#include <array>
#include <cstddef>

// The image, put here by kernels_image.S.
extern "C" const unsigned char tugline_device_kernels[];

namespace tugline::device::cuda {
namespace {

constexpr std::array kNames = {"tugline_guarded_copy", "tugline_guarded_fill"};

CUlibrary load_library() {
  CUlibrary library = nullptr;
  const CUresult result =
      driver().cuLibraryLoadData(&library, tugline_device_kernels, nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (result == CUDA_ERROR_NO_BINARY_FOR_GPU) {
    throw Error(ErrorCode::unsupported, "tugline's CUDA kernels have no code for this device",
                "build with CMAKE_CUDA_ARCHITECTURES that contain it, or install a newer driver",
                {.operation = "loading of kernels", .native_code = static_cast<long>(result)});
  }
  check(result, "loading of kernels");
  return library;
}

CUkernel load_kernel(Kernel kernel) {
  static const CUlibrary library = load_library();
  CUkernel found = nullptr;
  check(driver().cuLibraryGetKernel(&found, library, kNames[static_cast<std::size_t>(kernel)]),
        "look-up of a kernel");
  return found;
}

}  // namespace

CUfunction kernel_function(Kernel kernel) {
  static const std::array<CUkernel, kNames.size()> kernels = {load_kernel(Kernel::guarded_copy),
                                                              load_kernel(Kernel::guarded_fill)};
  CUfunction function = nullptr;
  check(driver().cuKernelGetFunction(&function, kernels[static_cast<std::size_t>(kernel)]),
        "loading of a kernel");
  return function;
}

void load_kernels() {
  for (Kernel kernel : {Kernel::guarded_copy, Kernel::guarded_fill}) (void)kernel_function(kernel);
}

}  // namespace tugline::device::cuda

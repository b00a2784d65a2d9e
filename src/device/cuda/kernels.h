// SPDX-License-Identifier: Apache-2.0
// The device backend's own kernels: compiled into one image that is part of the library.
#pragma once

#include "device/cuda/driver.h"

namespace tugline::device::cuda {

enum class Kernel { guarded_copy, guarded_fill };

/// The kernel for the current context. Thread-safe. Throws Error{unsupported} when the image has no code for
/// this device.
CUfunction kernel_function(Kernel kernel);
/// Loads all of them into the current context. A kernel that is loaded at its first launch waits for all work
/// of the device, which may be waiting for that launch.
void load_kernels();

}  // namespace tugline::device::cuda

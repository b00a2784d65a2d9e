// SPDX-License-Identifier: Apache-2.0
// Backends in libraries of their own, loaded when first asked for: one build runs where their drivers are and
// where they are not.
#pragma once

#include "device/registry.h"

namespace tugline::device {

/// Loads libtugline_cuda.so at the first call and adds its devices to the registry; no device is opened by
/// it. It is looked for beside this library or program, in ../lib from there, and where the loader looks.
/// Thread-safe. Throws Error{unsupported}, the same one at every call: this build has no such library, it is
/// of another version, there is no driver, or no GPU.
Backend& load_cuda();

/// What the library exports: makes the backend for a caller of the given version, or throws what load_cuda()
/// is to throw.
using BackendEntry = Backend* (*)(const char* version);
constexpr const char* kCudaEntry = "tugline_cuda_backend";

}  // namespace tugline::device

// SPDX-License-Identifier: Apache-2.0
// The device's primary context on the calling thread for the length of a scope, and what was there before
// after it: a library does not change which device its caller works with.
#pragma once

#include "device/cuda/driver.h"

namespace tugline::device::cuda {

class ContextGuard {
 public:
  /// Throws Error{invalid_usage} in a forked child, which CUDA does not work in.
  explicit ContextGuard(CUcontext context) {
    require_not_forked();
    check(driver().cuCtxPushCurrent(context), "cuCtxPushCurrent");
  }
  ~ContextGuard() {
    CUcontext popped = nullptr;
    (void)driver().cuCtxPopCurrent(&popped);
  }
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;
};

}  // namespace tugline::device::cuda

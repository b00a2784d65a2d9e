// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, opened at run time: a process without a GPU loads nothing of it, and a driver that is too
// old is an error that says so.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <string>
#include <type_traits>

#include "tugline/error.h"

namespace tugline::device::cuda {

// The functions that the backend calls, and the driver version that brought each in this form.
#define TUGLINE_CUDA_FUNCTIONS(X)             \
  X(cuInit, 2000)                             \
  X(cuGetErrorName, 6000)                     \
  X(cuGetErrorString, 6000)                   \
  X(cuDeviceGetCount, 2000)                   \
  X(cuDeviceGet, 2000)                        \
  X(cuDeviceGetName, 2000)                    \
  X(cuDeviceGetUuid, 11040)                   \
  X(cuDeviceTotalMem, 3020)                   \
  X(cuDeviceGetAttribute, 2000)               \
  X(cuDeviceCanAccessPeer, 4000)              \
  X(cuDevicePrimaryCtxRetain, 7000)           \
  X(cuCtxPushCurrent, 4000)                   \
  X(cuCtxPopCurrent, 4000)                    \
  X(cuMemGetInfo, 3020)                       \
  X(cuMemGetAllocationGranularity, 10020)     \
  X(cuMemCreate, 10020)                       \
  X(cuMemRelease, 10020)                      \
  X(cuMemAddressReserve, 10020)               \
  X(cuMemAddressFree, 10020)                  \
  X(cuMemMap, 10020)                          \
  X(cuMemUnmap, 10020)                        \
  X(cuMemSetAccess, 10020)                    \
  X(cuMemExportToShareableHandle, 10020)      \
  X(cuMemImportFromShareableHandle, 10020)    \
  X(cuMemHostAlloc, 2020)                     \
  X(cuPointerGetAttributes, 7000)             \
  X(cuMemcpyAsync, 4000)                      \
  X(cuMemsetD8Async, 3020)                    \
  X(cuStreamCreate, 2000)                     \
  X(cuStreamDestroy, 4000)                    \
  X(cuStreamQuery, 2000)                      \
  X(cuStreamSynchronize, 2000)                \
  X(cuStreamWaitEvent, 3020)                  \
  X(cuStreamGetCaptureInfo, 12030)            \
  X(cuStreamUpdateCaptureDependencies, 12030) \
  X(cuStreamIsCapturing, 10000)               \
  X(cuStreamBeginCapture, 10010)              \
  X(cuStreamEndCapture, 10000)                \
  X(cuStreamBatchMemOp, 11070)                \
  X(cuLaunchHostFunc, 10000)                  \
  X(cuLaunchKernel, 4000)                     \
  X(cuLibraryLoadData, 12000)                 \
  X(cuLibraryGetKernel, 12000)                \
  X(cuKernelGetFunction, 12000)               \
  X(cuEventCreate, 2000)                      \
  X(cuEventDestroy, 4000)                     \
  X(cuEventRecord, 2000)                      \
  X(cuEventQuery, 2000)                       \
  X(cuEventSynchronize, 2000)                 \
  X(cuEventElapsedTime, 2000)                 \
  X(cuGraphGetNodes, 10000)                   \
  X(cuGraphNodeGetDependentNodes, 12030)      \
  X(cuGraphInstantiateWithFlags, 11040)       \
  X(cuGraphDestroy, 10000)                    \
  X(cuGraphExecDestroy, 10000)                \
  X(cuGraphLaunch, 10000)                     \
  X(cuGraphAddChildGraphNode, 10000)          \
  X(cuGraphAddBatchMemOpNode, 11070)          \
  X(cuUserObjectCreate, 11030)                \
  X(cuUserObjectRelease, 11030)               \
  X(cuGraphRetainUserObject, 11030)

/// The oldest driver whose functions have the signatures above (cuDriverGetVersion's number).
constexpr int kOldestDriver = 12030;

struct Driver {
// The headers' own type for that version: a name that the headers map to another function does not compile.
#define TUGLINE_CUDA_MEMBER(function, since)    \
  PFN_##function##_v##since function = nullptr; \
  static_assert(std::is_same_v<decltype(&::function), PFN_##function##_v##since>);
  TUGLINE_CUDA_FUNCTIONS(TUGLINE_CUDA_MEMBER)
#undef TUGLINE_CUDA_MEMBER
  int version = 0;
};

/// The driver of this process, opened and initialised at the first call. Thread-safe. Throws
/// Error{unsupported}, always the same: no driver, one that is too old, or none that starts.
const Driver& driver();

/// True in a child that was forked after the driver had been opened.
bool is_forked() noexcept;
/// Throws Error{invalid_usage} there.
void require_not_forked();

/// Throws the Error for a result other than success; `operation` is the user's word for what failed.
void check(CUresult result, const char* operation, const std::string& device = {});
/// "CUDA_ERROR_INVALID_VALUE (invalid argument)".
std::string text_of(CUresult result);

}  // namespace tugline::device::cuda

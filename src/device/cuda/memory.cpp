// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU: segments that can be shared as descriptors, mapped here or imported from others.
#include <fmt/format.h>

#include <vector>

#include "base/log.h"
#include "device/cuda/context.h"
#include "device/cuda/cuda_device.h"

namespace tugline::device::cuda {
namespace {

void require_bytes(const char* operation, std::size_t bytes, const std::string& device) {
  if (bytes > 0) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("{} of 0 bytes", operation),
              "ask for at least one byte", {.operation = operation, .device = device});
}

}  // namespace

CUmemAllocationProp CudaDevice::segment_properties() const {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_};
  properties.allocFlags.gpuDirectRDMACapable = rdma_ ? 1 : 0;
  return properties;
}

// Takes the handle: the mapping keeps the memory.
void* CudaDevice::map(CUmemGenericAllocationHandle handle, std::size_t bytes, const char* operation) {
  CUdeviceptr address = 0;
  CUresult result = driver().cuMemAddressReserve(&address, bytes, granularity_, 0, 0);
  bool mapped = false;
  if (result == CUDA_SUCCESS) {
    result = driver().cuMemMap(address, bytes, 0, handle, 0);
    mapped = result == CUDA_SUCCESS;
  }
  if (result == CUDA_SUCCESS) {
    std::vector<CUmemAccessDesc> access;
    int count = 0;
    result = driver().cuDeviceGetCount(&count);
    for (int other = 0; other < count && result == CUDA_SUCCESS; ++other) {
      int reaches = other == device_ ? 1 : 0;
      if (reaches == 0) result = driver().cuDeviceCanAccessPeer(&reaches, other, device_);
      if (reaches != 0)
        access.push_back({.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = other},
                          .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
    }
    if (result == CUDA_SUCCESS)
      result = driver().cuMemSetAccess(address, bytes, access.data(), access.size());
  }
  (void)driver().cuMemRelease(handle);
  if (result == CUDA_SUCCESS) return reinterpret_cast<void*>(address);
  if (mapped) (void)driver().cuMemUnmap(address, bytes);
  if (address != 0) (void)driver().cuMemAddressFree(address, bytes);
  check(result, operation, label());
  return nullptr;
}

void* CudaDevice::allocate(std::size_t bytes) {
  require_bytes("allocate", bytes, label());
  ContextGuard guard(context_);
  const std::uint64_t free = free_bytes();
  const CUmemAllocationProp properties = segment_properties();
  CUmemGenericAllocationHandle handle = 0;
  // More than the device has is refused here: rounded up, it could wrap.
  const CUresult result = bytes > info_.memory_bytes
                              ? CUDA_ERROR_OUT_OF_MEMORY
                              : driver().cuMemCreate(&handle, segment_bytes(bytes), &properties, 0);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    throw Error(
        ErrorCode::out_of_memory,
        fmt::format("allocation of {} bytes, while {} of {} are free", bytes, free, info_.memory_bytes),
        "allocate less, free memory, or use another device",
        {.operation = "allocate", .device = label(), .native_code = static_cast<long>(result)});
  }
  check(result, "allocate", label());
  return map(handle, segment_bytes(bytes), "allocate");
}

void CudaDevice::deallocate(void* address, std::size_t bytes) noexcept {
  if (address == nullptr || is_forked()) return;
  try {
    ContextGuard guard(context_);
    const auto at = reinterpret_cast<CUdeviceptr>(address);
    check(driver().cuMemUnmap(at, segment_bytes(bytes)), "deallocate", label());
    check(driver().cuMemAddressFree(at, segment_bytes(bytes)), "deallocate", label());
  } catch (const Error& error) {
    base::log(base::LogLevel::error, "deallocate of {} bytes at {} failed: {}", bytes, address, error.what());
  }
}

void* CudaDevice::import(int descriptor, std::size_t bytes) {
  require_bytes("import", bytes, label());
  if (bytes % granularity_ != 0) {
    throw Error(ErrorCode::invalid_argument, fmt::format("import of {} bytes", bytes),
                fmt::format("name all bytes of the segment: a multiple of {}", granularity_),
                {.operation = "import", .device = label()});
  }
  ContextGuard guard(context_);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result = driver().cuMemImportFromShareableHandle(
      &handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != CUDA_SUCCESS) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("descriptor {} is no segment of a GPU: {}", descriptor, text_of(result)),
                "import what another process exported of this kind of device",
                {.operation = "import", .device = label(), .native_code = static_cast<long>(result)});
  }
  return map(handle, bytes, "import");
}

void CudaDevice::unimport(void* address, std::size_t bytes) noexcept {
  deallocate(address, bytes);
}

std::uint64_t CudaDevice::free_bytes() const {
  ContextGuard guard(context_);
  std::size_t free = 0;
  std::size_t total = 0;
  check(driver().cuMemGetInfo(&free, &total), "free_bytes", label());
  return free;
}

}  // namespace tugline::device::cuda

// SPDX-License-Identifier: Apache-2.0
// What a GPU is and what it says of itself.
#include <fmt/format.h>

#include "device/cuda/context.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/kernels.h"

namespace tugline::device::cuda {
namespace {

// As nvidia-smi and dcgm-exporter write it.
std::string uuid_text(const CUuuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

int attribute(CUdevice device, CUdevice_attribute which) {
  int value = 0;
  check(driver().cuDeviceGetAttribute(&value, which, device), "description of a device");
  return value;
}

}  // namespace

CudaDevice::CudaDevice(int index) {
  info_.kind = DeviceKind::cuda;
  info_.index = index;
  check(driver().cuDeviceGet(&device_, index), "opening of a device", label());
  CUuuid uuid{};
  check(driver().cuDeviceGetUuid(&uuid, device_), "description of a device", label());
  info_.uuid = uuid_text(uuid);
  char name[256] = {};
  check(driver().cuDeviceGetName(name, sizeof(name), device_), "description of a device", label());
  info_.name = name;
  std::size_t total = 0;
  check(driver().cuDeviceTotalMem(&total, device_), "description of a device", label());
  info_.memory_bytes = total;
  if (attribute(device_, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0 ||
      attribute(device_, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) == 0) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{} ({}) cannot share memory through descriptors", label(), info_.name),
                "use another device, or host devices",
                {.operation = "opening of a device", .device = label()});
  }
  rdma_ = attribute(device_, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0;
  // Retained until the process ends, as the device is.
  check(driver().cuDevicePrimaryCtxRetain(&context_, device_), "start of a context", label());
  const CUmemAllocationProp properties = segment_properties();
  check(driver().cuMemGetAllocationGranularity(&granularity_, &properties,
                                               CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
        "description of a device", label());
  {
    ContextGuard guard(context_);
    load_kernels();
  }
  default_stream_ = create_stream();
}

}  // namespace tugline::device::cuda

// SPDX-License-Identifier: Apache-2.0
// The contract suite for the CUDA backend. Without a driver there is no device to try: the reason is printed.
#include <cstdio>
#include <memory>

#include "conformance/contract.h"
#include "device/cuda/backend.h"
#include "device/cuda/context.h"

namespace tugline::contract {
namespace {

using device::cuda::CudaBackend;
using device::cuda::CudaDevice;

CudaBackend* backend() {
  static CudaBackend* found = []() -> CudaBackend* {
    try {
      return new CudaBackend;
    } catch (const Error& error) {
      std::fprintf(stderr, "no GPU to test with:\n%s\n", error.what());
      return nullptr;
    }
  }();
  return found;
}

base::UniqueFd shareable(CudaDevice& device, std::size_t bytes) {
  using namespace device::cuda;
  ContextGuard guard(device.context());
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device.ordinal()};
  CUmemGenericAllocationHandle handle = 0;
  check(driver().cuMemCreate(&handle, bytes, &properties, 0), "cuMemCreate");
  int descriptor = -1;
  check(
      driver().cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      "cuMemExportToShareableHandle");
  check(driver().cuMemRelease(handle), "cuMemRelease");
  return base::UniqueFd(descriptor);
}

std::vector<Backend> backends() {
  if (backend() == nullptr) return {};
  Backend one;
  one.name = "cuda";
  one.devices = [] {
    std::vector<Device*> devices;
    for (int i = 0; i < backend()->device_count(); ++i) devices.push_back(&backend()->device(i));
    return devices;
  };
  one.make_shareable = [](std::size_t bytes) {
    return shareable(static_cast<CudaDevice&>(backend()->device(0)), bytes);
  };
  return {one};
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceContract);
INSTANTIATE_TEST_SUITE_P(Cuda, DeviceContract, testing::ValuesIn(backends()),
                         [](const auto& instance) { return instance.param.name; });

// Without a device: what asks for one gets the reason, every time.
TEST(CudaDriver, is_there_or_says_why_not) {
  for (int i = 0; i < 2; ++i) {
    std::string text;
    const ErrorCode code = code_of([] { (void)device::cuda::driver(); }, &text);
    if (backend() != nullptr) {
      EXPECT_EQ(code, ErrorCode::ok) << text;
    } else {
      EXPECT_EQ(code, ErrorCode::unsupported);
      EXPECT_NE(text.find("CUDA driver"), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace tugline::contract

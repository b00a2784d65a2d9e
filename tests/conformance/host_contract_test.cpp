// SPDX-License-Identifier: Apache-2.0
// The contract suite for the host backend.
#include "base/shared_memory.h"
#include "conformance/contract.h"
#include "device/registry.h"

namespace tugline::contract {
namespace {

Backend host_backend(int count) {
  Backend backend;
  backend.name = "host_" + std::to_string(count);
  backend.devices = [count] { return device::host_devices(count); };
  backend.make_shareable = [](std::size_t bytes) { return base::create_sealed_memfd("contract", bytes); };
  return backend;
}

INSTANTIATE_TEST_SUITE_P(Host, DeviceContract, testing::Values(host_backend(1), host_backend(3)),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace tugline::contract

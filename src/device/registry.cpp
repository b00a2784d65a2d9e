// SPDX-License-Identifier: Apache-2.0
#include "device/registry.h"

#include <fmt/format.h>

#include <mutex>
#include <utility>

#include "device/host/host_device.h"

namespace tugline::device {
namespace {

constexpr int kMaxHostDevices = 1024;

struct Registry {
  std::mutex mutex;
  std::vector<std::unique_ptr<host::HostDevice>> hosts;
  std::vector<std::unique_ptr<Backend>> backends;
};

// Never destroyed: owners of streams with static lifetime may outlive any order of destruction.
Registry& registry() {
  static Registry* all = new Registry;
  return *all;
}

std::string list(const std::vector<Device*>& devices) {
  std::string text;
  for (Device* device : devices) {
    if (!text.empty()) text += ", ";
    text +=
        fmt::format("{}:{} ({})", name_of(device->info().kind), device->info().index, device->info().uuid);
  }
  return text.empty() ? "none" : text;
}

[[noreturn]] void refuse(std::string wanted, const std::vector<Device*>& devices) {
  throw Error(ErrorCode::not_found, fmt::format("no device {}; there are: {}", wanted, list(devices)),
              "name one of those, or ask for more host devices when the job is joined",
              {.operation = "look-up of a device"});
}

}  // namespace

Backend::~Backend() = default;

std::vector<Device*> host_devices(int count) {
  if (count < 1 || count > kMaxHostDevices) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{} host devices asked for", count),
                fmt::format("ask for 1 to {}", kMaxHostDevices), {.operation = "host_devices"});
  }
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  while (static_cast<int>(all.hosts.size()) < count) {
    all.hosts.push_back(std::make_unique<host::HostDevice>(static_cast<int>(all.hosts.size())));
  }
  std::vector<Device*> devices;
  for (int i = 0; i < count; ++i) devices.push_back(all.hosts[static_cast<std::size_t>(i)].get());
  return devices;
}

Device& host_device(int index) {
  if (index < 0 || index >= kMaxHostDevices) {
    throw Error(ErrorCode::invalid_argument, fmt::format("host device {} asked for", index),
                fmt::format("name one of 0 to {}", kMaxHostDevices - 1), {.operation = "host_device"});
  }
  return *host_devices(index + 1).back();
}

void add_backend(std::unique_ptr<Backend> backend) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  bool taken = backend->kind() == DeviceKind::host;
  for (auto& other : all.backends) taken = taken || other->kind() == backend->kind();
  if (taken) {
    throw Error(ErrorCode::already_exists,
                fmt::format("a second backend of {} devices was added", name_of(backend->kind())),
                "load each backend once", {.operation = "add_backend"});
  }
  all.backends.push_back(std::move(backend));
}

std::vector<Device*> all_devices() {
  Registry& all = registry();
  std::vector<Device*> devices;
  std::vector<Backend*> backends;
  {
    std::lock_guard lock(all.mutex);
    for (auto& device : all.hosts) devices.push_back(device.get());
    for (auto& backend : all.backends) backends.push_back(backend.get());
  }
  // Outside the lock: a backend may ask for devices itself.
  for (Backend* backend : backends) {
    for (int i = 0; i < backend->device_count(); ++i) devices.push_back(&backend->device(i));
  }
  return devices;
}

Device& find_device(DeviceKind kind, int index) {
  const std::vector<Device*> devices = all_devices();
  for (Device* device : devices) {
    if (device->info().kind == kind && device->info().index == index) return *device;
  }
  refuse(fmt::format("{}:{}", name_of(kind), index), devices);
}

Device& find_device(const DeviceInfo& info) {
  const std::vector<Device*> devices = all_devices();
  for (Device* device : devices) {
    if (device->info().kind == info.kind && device->info().uuid == info.uuid) return *device;
  }
  refuse(fmt::format("with uuid {}", info.uuid), devices);
}

}  // namespace tugline::device

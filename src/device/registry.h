// SPDX-License-Identifier: Apache-2.0
// The devices of this process: host devices made on demand, and those of backends that were loaded.
//
// Devices live until the process ends; references stay valid. Thread-safe.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "tugline/device.h"

namespace tugline::device {

/// Host device `index`; made, with those before it, when first asked for. Threads that act as ranks take one
/// each: what one has enqueued on its device's default stream holds up the blocking calls behind it, which
/// may be what its peers wait for. Throws Error{invalid_argument} for an index below 0 or above 1023.
Device& host_device(int index);

/// The host devices 0 .. count-1. Throws Error{invalid_argument} for a count below 1 or above 1024.
std::vector<Device*> host_devices(int count);

/// What a loaded library adds: its devices, which it owns.
class Backend {
 public:
  virtual ~Backend();
  virtual DeviceKind kind() const noexcept = 0;
  virtual int device_count() const noexcept = 0;
  virtual Device& device(int index) = 0;
};

/// Keeps the backend until the process ends. Throws Error{already_exists} for a second one of a kind, or one
/// of host devices.
void add_backend(std::unique_ptr<Backend> backend);

/// All devices so far: host devices first, then the backends' in the order in which they came.
std::vector<Device*> all_devices();

/// The device of that kind and index; host devices are not made. Throws Error{not_found} that lists what
/// there is.
Device& find_device(DeviceKind kind, int index);
/// The device that `info` describes, by its uuid. Throws Error{not_found}.
Device& find_device(const DeviceInfo& info);

}  // namespace tugline::device

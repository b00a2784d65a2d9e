// SPDX-License-Identifier: Apache-2.0
// What a host device says of itself.
#pragma once

#include "tugline/device.h"

namespace tugline::device::host {

/// Reads the host's identity once per call; files that are missing leave a general name. Throws
/// Error{invalid_argument} for a negative index.
DeviceInfo describe_host_device(int index);

}  // namespace tugline::device::host

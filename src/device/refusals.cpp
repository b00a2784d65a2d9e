// SPDX-License-Identifier: Apache-2.0
#include "device/refusals.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"

namespace tugline::device {

void refuse_foreign(const char* what, const std::string& owner, const std::string& device) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("the {} belongs to {}, not to {}", what, owner, device),
              fmt::format("use the {} with the device that made it", what),
              {.operation = fmt::format("look-up of a {}", what), .device = device});
}

void refuse_in_capture(std::string what_failed, const std::string& where, long native_code) {
  throw Error(ErrorCode::invalid_usage, std::move(what_failed),
              "during a capture only launch, copy, fill, record, wait and graph launch are legal: end it, "
              "and begin again",
              {.operation = "capture", .device = where, .native_code = native_code});
}

void report_bad_handle(const char* what, std::uintptr_t handle) noexcept {
  base::log(base::LogLevel::error, "destruction of {} handle {:#x}, which does not exist (destroyed twice?)",
            what, handle);
}

}  // namespace tugline::device

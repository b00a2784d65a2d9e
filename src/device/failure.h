// SPDX-License-Identifier: Apache-2.0
// Work that runs on a stream's executor, and what is kept when it fails: the status for those who must not
// allocate, the whole error for those who throw it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "tugline/device.h"
#include "tugline/error.h"

namespace tugline::device {

struct Failure {
  Status status;
  Error error;
};
/// Null is success. Shared, because an error travels along events to every stream that depends on it.
using FailurePtr = std::shared_ptr<const Failure>;

struct CopyWork {
  void* destination;
  const void* source;
  std::size_t bytes;
};
struct FillWork {
  void* destination;
  std::size_t bytes;
  std::uint8_t value;
};
/// What a stream runs and a graph keeps.
using Work = std::variant<HostTask, CopyWork, FillWork>;

/// Runs it. A bad status and anything thrown become a Failure whose text names `where` ("host:0 stream 3").
FailurePtr execute(const Work& work, const std::string& where) noexcept;

/// Refuses null pointers where bytes are to be moved. Throws Error{invalid_argument}.
void check(const Work& work, const std::string& where);

}  // namespace tugline::device

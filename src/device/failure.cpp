// SPDX-License-Identifier: Apache-2.0
#include "device/failure.h"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <new>

namespace tugline::device {
namespace {

struct Runner {
  Status operator()(const HostTask& task) const { return task(); }
  // memmove: an overlapping copy is defined here, and costs nothing more. Both functions forbid null pointers
  // even for no bytes.
  Status operator()(const CopyWork& copy) const {
    if (copy.bytes > 0) std::memmove(copy.destination, copy.source, copy.bytes);
    return Status::success();
  }
  Status operator()(const FillWork& fill) const {
    if (fill.bytes > 0) std::memset(fill.destination, fill.value, fill.bytes);
    return Status::success();
  }
};

std::string describe(const Status& status) {
  std::string text = fmt::format("a task returned {}", name_of(status.code));
  if (status.peer >= 0) text += fmt::format(", peer {}", status.peer);
  if (status.native_code != 0) text += fmt::format(", native code {}", status.native_code);
  if (status.detail != 0) text += fmt::format(", detail {}", status.detail);
  return text;
}

ErrorContext context_of(const std::string& where, const Status& status) {
  return {.operation = "work on a stream",
          .peer = status.peer,
          .device = where,
          .native_code = status.native_code};
}

FailurePtr failure_of(const Status& status, const std::string& where) {
  return std::make_shared<Failure>(Failure{
      status, Error(status.code, describe(status),
                    "later work of the stream was skipped: after sync() has thrown this, enqueue it again",
                    context_of(where, status))});
}

FailurePtr failure_of(ErrorCode code, std::string what_failed, const std::string& where) {
  Status status{.code = code};
  return std::make_shared<Failure>(
      Failure{status, Error(code, Remedy::fix_call, std::move(what_failed),
                            "catch it inside the task, and return a Status or throw tugline::Error instead",
                            context_of(where, status))});
}

// Made beforehand: when memory is so short that an error cannot be described, it is still reported.
const FailurePtr& undescribed() {
  static const FailurePtr* failure = new FailurePtr(std::make_shared<Failure>(
      Failure{{.code = ErrorCode::out_of_memory},
              Error(ErrorCode::out_of_memory, "a task failed, and there was no memory left to describe how",
                    "free memory", {.operation = "work on a stream", .device = "host"})}));
  return *failure;
}

}  // namespace

FailurePtr execute(const Work& work, const std::string& where) noexcept {
  const FailurePtr& fallback = undescribed();
  try {
    try {
      Status status = std::visit(Runner{}, work);
      return status.ok() ? nullptr : failure_of(status, where);
    } catch (const Error& error) {
      Status status{.code = error.code(),
                    .peer = error.context().peer,
                    .native_code = static_cast<std::int32_t>(error.context().native_code)};
      return std::make_shared<Failure>(Failure{status, error});
    } catch (const std::bad_alloc&) {
      return failure_of(ErrorCode::out_of_memory, "a task threw std::bad_alloc", where);
    } catch (const std::exception& exception) {
      return failure_of(ErrorCode::internal, fmt::format("a task threw: {}", exception.what()), where);
    } catch (...) {
      return failure_of(ErrorCode::internal, "a task threw something that is not a std::exception", where);
    }
  } catch (const std::bad_alloc&) {
    return fallback;
  }
}

void check(const Work& work, const std::string& where) {
  auto refuse = [&](const char* operation, std::string what) {
    throw Error(ErrorCode::invalid_argument, std::move(what), "pass memory that this process can reach",
                {.operation = operation, .device = where});
  };
  if (const auto* task = std::get_if<HostTask>(&work); task != nullptr && !*task) {
    refuse("launch", "launch of an empty task");
  }
  if (const auto* copy = std::get_if<CopyWork>(&work);
      copy != nullptr && copy->bytes > 0 && (copy->destination == nullptr || copy->source == nullptr)) {
    refuse("copy",
           fmt::format("copy of {} bytes from {} to {}", copy->bytes, copy->source, copy->destination));
  }
  if (const auto* fill = std::get_if<FillWork>(&work);
      fill != nullptr && fill->bytes > 0 && fill->destination == nullptr) {
    refuse("fill", fmt::format("fill of {} bytes at {}", fill->bytes, fill->destination));
  }
}

}  // namespace tugline::device

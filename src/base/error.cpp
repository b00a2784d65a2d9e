// SPDX-License-Identifier: Apache-2.0
#include "tugline/error.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

namespace tugline {
namespace {

std::string where_line(const ErrorContext& context, const SourceLocation& location, ErrorCode code) {
  std::string line;
  auto add = [&](std::string part) {
    if (!line.empty()) line += ", ";
    line += part;
  };
  if (!context.operation.empty()) add(context.operation);
  if (!context.communicator.empty()) add("communicator " + context.communicator);
  if (context.rank >= 0) add(fmt::format("rank {}", context.rank));
  if (context.peer >= 0) add(fmt::format("peer {}", context.peer));
  if (!context.device.empty()) add("device " + context.device);
  if (context.native_code != 0) {
    if (code == ErrorCode::system || context.device.empty()) {
      add(fmt::format("errno {} ({})", context.native_code,
                      std::strerror(static_cast<int>(context.native_code))));
    } else {
      add(fmt::format("native code {}", context.native_code));
    }
  }
  // The path below the source tree is enough to find the place and the same in every build.
  std::string_view file = location.file_name();
  for (std::string_view root : {"/src/", "/tools/", "/examples/", "/include/", "/tests/"}) {
    if (auto at = file.rfind(root); at != std::string_view::npos) {
      file = file.substr(at + 1);
      break;
    }
  }
  add(fmt::format("{}:{}", file, location.line()));
  return line;
}

// Descriptors run out by a limit, which no memory helps against.
Remedy remedy_of(ErrorCode code, const ErrorContext& context) {
  const bool descriptors = context.native_code == EMFILE || context.native_code == ENFILE;
  return descriptors && context.device.empty() ? Remedy::fix_call : default_remedy(code);
}

}  // namespace

std::string_view name_of(ErrorCode code) noexcept {
  constexpr std::string_view kNames[] = {
      "ok",          "invalid_argument", "invalid_usage",     "mismatch",  "out_of_memory",
      "peer_lost",   "stale_epoch",      "aborted",           "timed_out", "broker_lost",
      "not_found",   "already_exists",   "permission_denied", "torn",      "protocol",
      "unsupported", "system",           "internal"};
  auto index = static_cast<std::size_t>(code);
  return index < std::size(kNames) ? kNames[index] : "?";
}

std::string_view name_of(Remedy remedy) noexcept {
  constexpr std::string_view kNames[] = {"fix_call", "free_memory", "retry",     "reroute",
                                         "shrink",   "restart",     "report_bug"};
  auto index = static_cast<std::size_t>(remedy);
  return index < std::size(kNames) ? kNames[index] : "?";
}

Remedy default_remedy(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::invalid_usage:
    case ErrorCode::mismatch:
    case ErrorCode::not_found:
    case ErrorCode::already_exists:
    case ErrorCode::permission_denied:
    case ErrorCode::unsupported:
    case ErrorCode::system:
      return Remedy::fix_call;
    case ErrorCode::out_of_memory:
      return Remedy::free_memory;
    case ErrorCode::peer_lost:
      return Remedy::shrink;
    case ErrorCode::timed_out:
    case ErrorCode::torn:
      return Remedy::retry;
    case ErrorCode::stale_epoch:
    case ErrorCode::aborted:
    case ErrorCode::broker_lost:
      return Remedy::restart;
    case ErrorCode::ok:
    case ErrorCode::protocol:
    case ErrorCode::internal:
      return Remedy::report_bug;
  }
  return Remedy::report_bug;
}

Error::Error(ErrorCode code, std::string what_failed, std::string what_to_do, ErrorContext context,
             SourceLocation location)
    : Error(code, remedy_of(code, context), std::move(what_failed), std::move(what_to_do), std::move(context),
            location) {}

Error::Error(ErrorCode code, Remedy remedy, std::string what_failed, std::string what_to_do,
             ErrorContext context, SourceLocation location)
    : code_(code),
      remedy_(remedy),
      what_failed_(std::move(what_failed)),
      what_to_do_(std::move(what_to_do)),
      context_(std::move(context)),
      location_(location),
      text_(fmt::format("tugline: {}: {}\n  where: {}\n  do: {}: {}", name_of(code_), what_failed_,
                        where_line(context_, location_, code_), name_of(remedy_), what_to_do_)) {}

Error::~Error() = default;

}  // namespace tugline

// SPDX-License-Identifier: Apache-2.0
// Errors. `Error` is what the public functions throw: three lines that say what failed, where, and what to
// do. `Status` is its allocation-free form, used inside hot paths and kept as a stream's or communicator's
// asynchronous error.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include "tugline/export.h"
#include "tugline/source_location.h"

namespace tugline {

/// What went wrong. The name says what was lost or violated, not who noticed it.
enum class ErrorCode : std::uint8_t {
  ok,
  invalid_argument,   ///< a value outside its range: wrong count, root, name, path
  invalid_usage,      ///< a call that is not legal now: two operations at once, use after leave
  mismatch,           ///< ranks made different calls
  out_of_memory,      ///< device, host, cgroup or descriptor limit reached
  peer_lost,          ///< another rank died or was removed
  stale_epoch,        ///< this rank was removed, or the work belongs to an epoch that has ended
  aborted,            ///< somebody called abort()
  timed_out,          ///< a deadline passed
  broker_lost,        ///< the broker is gone
  not_found,          ///< no such name, file, device, plan
  already_exists,     ///< the name is taken
  permission_denied,  ///< token, uid, file mode, seal
  torn,               ///< a named buffer's last writer died while it wrote the only copy
  protocol,           ///< a frame or segment that does not follow the protocol
  unsupported,        ///< the machine or this build cannot do it
  system,             ///< a system call failed; native_code is errno
  internal,           ///< a bug of tugline
};

/// What helps. Every error carries exactly one.
enum class Remedy : std::uint8_t { fix_call, free_memory, retry, reroute, shrink, restart, report_bug };

TUGLINE_EXPORT std::string_view name_of(ErrorCode code) noexcept;
TUGLINE_EXPORT std::string_view name_of(Remedy remedy) noexcept;
/// The remedy that fits a code when the thrower knows no better one.
TUGLINE_EXPORT Remedy default_remedy(ErrorCode code) noexcept;

/// Outcome of an internal step: a code and three numbers, trivially copyable, never allocates.
struct [[nodiscard]] Status {
  ErrorCode code = ErrorCode::ok;
  std::int32_t peer = -1;        ///< the rank that is concerned, -1 if none
  std::int32_t native_code = 0;  ///< errno or a driver's code, 0 if none
  std::uint64_t detail = 0;      ///< meaning depends on the code (sequence number, bytes, ...)

  constexpr bool ok() const noexcept { return code == ErrorCode::ok; }
  static constexpr Status success() noexcept { return {}; }
};

/// Where an error happened. Unset fields are left out of the text.
struct ErrorContext {
  std::string operation;     ///< "all_reduce #17"
  std::string communicator;  ///< "world (epoch 0)"
  int rank = -1;
  int peer = -1;
  std::string device;    ///< "host:0"
  long native_code = 0;  ///< errno or driver code
};

/// Thrown by public functions. what() is three lines:
///   tugline: <code>: <what failed, with both sides' values>
///     where: <operation, communicator, rank, peer, device, native code, source location>
///     do: <remedy>: <what to do>
class TUGLINE_EXPORT Error : public std::exception {
 public:
  Error(ErrorCode code, std::string what_failed, std::string what_to_do, ErrorContext context = {},
        SourceLocation location = SourceLocation::current());
  Error(ErrorCode code, Remedy remedy, std::string what_failed, std::string what_to_do,
        ErrorContext context = {}, SourceLocation location = SourceLocation::current());
  ~Error() override;
  Error(const Error&) = default;
  Error& operator=(const Error&) = default;

  const char* what() const noexcept override { return text_.c_str(); }
  ErrorCode code() const noexcept { return code_; }
  Remedy remedy() const noexcept { return remedy_; }
  const ErrorContext& context() const noexcept { return context_; }
  const std::string& what_failed() const noexcept { return what_failed_; }
  const std::string& what_to_do() const noexcept { return what_to_do_; }
  const SourceLocation& location() const noexcept { return location_; }

 private:
  ErrorCode code_;
  Remedy remedy_;
  std::string what_failed_;
  std::string what_to_do_;
  ErrorContext context_;
  SourceLocation location_;
  std::string text_;
};

}  // namespace tugline

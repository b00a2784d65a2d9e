// SPDX-License-Identifier: Apache-2.0
// A wrong command line.
#pragma once

#include <string>

#include "tugline/error.h"

namespace tugline::cli {

/// The words of the command line are at fault: one is unknown, does not fit another, or names an input that
/// is not there. Only for what is found before anything was started; the command ends with exit code 2.
class UsageError : public Error {
 public:
  UsageError(std::string what_failed, std::string what_to_do, ErrorContext context = {},
             SourceLocation location = SourceLocation::current())
      : UsageError(ErrorCode::invalid_argument, std::move(what_failed), std::move(what_to_do),
                   std::move(context), location) {}
  UsageError(ErrorCode code, std::string what_failed, std::string what_to_do, ErrorContext context = {},
             SourceLocation location = SourceLocation::current())
      : Error(code, Remedy::fix_call, std::move(what_failed), std::move(what_to_do), std::move(context),
              location) {}
};

}  // namespace tugline::cli

// SPDX-License-Identifier: Apache-2.0
// A wrong command line.
#pragma once

#include <string>

#include "tugline/error.h"

namespace tugline::cli {

/// The command ends with exit code 2.
class UsageError : public Error {
 public:
  UsageError(std::string what_failed, std::string what_to_do, ErrorContext context = {},
             SourceLocation location = SourceLocation::current())
      : Error(ErrorCode::invalid_argument, std::move(what_failed), std::move(what_to_do), std::move(context),
              location) {}
};

}  // namespace tugline::cli

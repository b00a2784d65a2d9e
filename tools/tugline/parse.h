// SPDX-License-Identifier: Apache-2.0
// The command line as the user typed it, turned into plain options.
#pragma once

#include <span>

#include "options.h"

namespace tugline::cli {

/// Parses the arguments after the program's name. Throws UsageError that names the argument and says which
/// --help to read. Never prints, never exits.
Parsed parse(std::span<const std::string> arguments);

}  // namespace tugline::cli

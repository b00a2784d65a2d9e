// SPDX-License-Identifier: Apache-2.0
// Finds the program that a rank is to run.
#pragma once

#include <string>

namespace tugline::cli {

/// Absolute or relative path of the executable `name`: itself if it holds a slash, else the first match in
/// PATH. Throws Error{not_found} or Error{permission_denied} that names it.
std::string find_program(const std::string& name);
/// Path of the running program, for starting it again.
std::string own_program();

}  // namespace tugline::cli

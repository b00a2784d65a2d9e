// SPDX-License-Identifier: Apache-2.0
// Finds the program that a rank is to run.
#pragma once

#include <string>

namespace tugline::cli {

/// Absolute or relative path of the executable `name`: itself if it holds a slash, else the first match in
/// PATH. Throws Error that names it and says what it is instead: not there, a directory, not executable.
std::string find_program(const std::string& name);
/// Throws Error that says why execve() of the program has failed with `code`: itself, its interpreter, its
/// loader.
[[noreturn]] void fail_to_start(const std::string& path, int code);
/// Path of the running program, for starting it again.
std::string own_program();

}  // namespace tugline::cli

// SPDX-License-Identifier: Apache-2.0
// Whole files, with errors that name them.
#pragma once

#include <string>
#include <string_view>

namespace tugline::cli {

/// Throws UsageError{not_found}, Error{permission_denied} or Error{system}.
std::string read_file(const std::string& path);
/// Throws, as write_file() would, when the file cannot be written: for the start of work whose result goes
/// there. Leaves nothing behind.
void check_writable(const std::string& path);
/// Writes beside the file first, so that a reader never sees half of it. Throws as read_file does.
void write_file(const std::string& path, std::string_view text);

}  // namespace tugline::cli

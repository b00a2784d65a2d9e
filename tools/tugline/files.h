// SPDX-License-Identifier: Apache-2.0
// Whole files, with errors that name them.
#pragma once

#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace tugline::cli {

/// The text of an input that the command line names, `what` in errors: "the plan file"; of a pipe too that
/// has a writer. Throws UsageError where base::read_file() throws not_found or invalid_argument.
std::string read_file(const std::string& path, std::string_view what);
/// Throws, as write_file() would, when the file cannot be written: for the start of work whose result goes
/// there. Leaves nothing behind, but a pipe or device open, to be kept so until write_file(): the reader of a
/// pipe takes its closing for the end.
[[nodiscard]] base::UniqueFd check_writable(const std::string& path);
/// Writes beside the file first, so that a reader never sees half of it. Throws Error{not_found},
/// Error{permission_denied} or Error{system}.
void write_file(const std::string& path, std::string_view text);

}  // namespace tugline::cli

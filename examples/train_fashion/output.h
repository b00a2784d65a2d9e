// SPDX-License-Identifier: Apache-2.0
// Results that cannot be written are errors, and files are looked at before the work whose results they take.
#pragma once

#include <filesystem>
#include <string_view>

namespace train_fashion {

/// Flushes standard output. Throws tugline::Error{system} when anything printed so far could not be written.
void flush_output();

/// Throws as write_whole() does when the file cannot be written; leaves nothing behind.
void check_writable(const std::filesystem::path& path);
/// Writes beside the file first, so that nobody ever sees half of it. Throws tugline::Error{system}.
void write_whole(const std::filesystem::path& path, std::string_view text);

}  // namespace train_fashion

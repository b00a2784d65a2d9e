// SPDX-License-Identifier: Apache-2.0
// Whole files, opened so that none makes its reader or its writer wait or read without an end.
#pragma once

#include <fcntl.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace tugline::base {

/// Bytes of a file that is read as a whole.
inline constexpr std::size_t kLongestFile = 64 << 20;

enum class Pipes : std::uint8_t {
  refused,  ///< for what several processes read: what one has read is gone for the next
  read,     ///< up to the end of its writers, at least one of which is there already
};

/// The file's text. `what` names it in errors: "the settings file". Throws Error, native_code errno, when it
/// cannot be opened or read: not_found, permission_denied or system (a directory too); invalid_argument for a
/// pipe that is refused or has no writer, a socket, and more than kLongestFile bytes.
std::string read_file(const std::string& path, std::string_view what, Pipes pipes);

/// Opens the file for writing; `flags` are added to O_WRONLY and O_CLOEXEC. Does not wait for a pipe's
/// reader. None, with errno, when it cannot be opened.
UniqueFd open_to_write(const std::string& path, int flags, mode_t mode) noexcept;
/// What the errno of open_to_write() or of a write means for that file.
std::string why_not_written(const std::string& path, int reason);
/// Writes all of it; 0, or the errno of what failed.
int write_all(int descriptor, std::string_view text) noexcept;

}  // namespace tugline::base

// SPDX-License-Identifier: Apache-2.0
// Log front end: `base::log(LogLevel::info, "{} ranks", n)` writes one line
//   <host>:<pid>:<tid> tugline INFO 4 ranks
// to stderr or to TUGLINE_LOG_FILE, when TUGLINE_DEBUG asks for that level.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace tugline::base {

enum class LogLevel : std::uint8_t { error, warn, info, debug, trace };

std::string_view name_of(LogLevel level) noexcept;

/// True when a line of this level would be written; cheap. Reads the settings on first use.
bool log_enabled(LogLevel level) noexcept;

/// Writes one line (newlines inside are kept, with an indent). Thread-safe; lines of several threads and
/// processes do not mix. Never throws.
void log_text(LogLevel level, std::string_view text) noexcept;

/// Formats with fmt and writes. The arguments are not formatted when the level is off.
template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) noexcept {
  if (!log_enabled(level)) return;
  try {
    log_text(level, fmt::format(format, std::forward<Args>(args)...));
  } catch (const std::exception& failure) {
    log_text(LogLevel::error, failure.what());
  }
}

/// Receives every enabled line in place of the file: level and text without prefix.
using LogCallback = std::function<void(LogLevel, std::string_view)>;
/// Sets the callback; an empty one goes back to the file. It is called under a lock and must not log.
void set_log_callback(LogCallback callback);

/// Sets level and file ("" is stderr; %h becomes the host's name, %p the process id). Called by settings();
/// tests call it to change the level. A file that cannot be opened or, later, written is reported on stderr,
/// which is then used.
void configure_log(LogLevel level, const std::string& file);

}  // namespace tugline::base

// SPDX-License-Identifier: Apache-2.0
// The only way from the subcommands to standard output: what cannot be written is an error, never silence.
#pragma once

#include <string_view>

namespace tugline::cli {

/// The reader of standard output went away. No failure of the command: main() ends it without a word, as
/// SIGPIPE ends any tool.
struct ReaderGone {};

/// Writes all of `text`, unbuffered. `what` names it in errors: "the plan". Throws Error{system} with the
/// reason, ReaderGone when nobody reads.
void write_output(std::string_view what, std::string_view text);
/// Throws what write_output throws after write() has failed with `code`.
[[noreturn]] void fail_output(std::string_view what, int code);

/// For main(), before anything else: SIGPIPE and SIGXFSZ become errors of write(), and a standard descriptor
/// that is closed is taken by one that fails, so that no file opened later is written to in its place.
void prepare_standard_descriptors();
/// Ends this process as SIGPIPE does; 141 in a shell.
[[noreturn]] void end_as_sigpipe() noexcept;

}  // namespace tugline::cli

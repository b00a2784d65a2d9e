// SPDX-License-Identifier: Apache-2.0
// The place of a call: std::source_location's part that errors need, for compilers whose library lacks it
// (clang 14 with libstdc++ 12), and one type in the library's interface whatever compiler its user has.
#pragma once

#include <cstdint>

namespace tugline {

class SourceLocation {
 public:
  constexpr SourceLocation() noexcept = default;
  /// As a default argument, the place of the call.
  static constexpr SourceLocation current(const char* file = __builtin_FILE(),
                                          const char* function = __builtin_FUNCTION(),
                                          std::uint32_t line = __builtin_LINE()) noexcept {
    SourceLocation here;
    here.file_ = file;
    here.function_ = function;
    here.line_ = line;
    return here;
  }

  constexpr const char* file_name() const noexcept { return file_; }
  constexpr const char* function_name() const noexcept { return function_; }
  constexpr std::uint32_t line() const noexcept { return line_; }

 private:
  const char* file_ = "";
  const char* function_ = "";
  std::uint32_t line_ = 0;
};

}  // namespace tugline

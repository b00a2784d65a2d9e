// SPDX-License-Identifier: Apache-2.0
// Numbers of things in texts: "1 rank", "2 ranks".
#pragma once

#include <fmt/core.h>

#include <concepts>
#include <string>
#include <string_view>

namespace tugline::base {

/// The number and the noun, with an s unless there is exactly one.
template <std::integral Number>
std::string counted(Number number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

}  // namespace tugline::base

// SPDX-License-Identifier: Apache-2.0
#include "base/toml_file.h"

#include <fmt/core.h>
#include <toml++/toml.h>

#include <algorithm>

#include "tugline/error.h"

namespace tugline::base {
namespace {

/// The library bounds how deep values nest, but not keys such as a.a.a, each part of which is a table within
/// the last: their owners end on the stack. Dots in values count too, which have far fewer.
void refuse_deep_keys(const SettingsFile& file) {
  constexpr int kMostDots = 256;
  int line = 1;
  int dots = 0;
  for (const char c : file.text) {
    if (c == '\n') {
      ++line;
      dots = 0;
    }
    if (c == '.' && ++dots > kMostDots)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} line {} has more than {} dots", file.path, line, kMostDots),
                  "write: name = \"value\"", {.operation = "reading settings"});
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> read_toml_keys(const SettingsFile& file) {
  struct Key {
    std::uint32_t line;
    std::string name;
    std::string value;
  };
  std::vector<Key> keys;
  refuse_deep_keys(file);
  try {
    const toml::table table = toml::parse(file.text, file.path);
    for (const auto& [key, node] : table) {
      const auto line = key.source().begin.line;
      std::string value;
      if (const auto* text = node.as_string()) {
        value = text->get();
      } else if (const auto* integer = node.as_integer()) {
        value = std::to_string(integer->get());
      } else if (const auto* flag = node.as_boolean()) {
        value = flag->get() ? "true" : "false";
      } else {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("\"{}\" in {} line {} is neither text, integer nor boolean", key.str(),
                                file.path, line),
                    "write: name = \"value\"", {.operation = "reading settings"});
      }
      keys.push_back({line, std::string(key.str()), std::move(value)});
    }
  } catch (const toml::parse_error& failure) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} line {} is not TOML: {}", file.path, failure.source().begin.line,
                            failure.description()),
                "correct that line", {.operation = "reading settings"});
  }
  std::stable_sort(keys.begin(), keys.end(),
                   [](const Key& left, const Key& right) { return left.line < right.line; });
  std::vector<std::pair<std::string, std::string>> result;
  for (auto& key : keys) result.emplace_back(std::move(key.name), std::move(key.value));
  return result;
}

}  // namespace tugline::base

// SPDX-License-Identifier: Apache-2.0
// The settings file's keys as texts.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/settings.h"

namespace tugline::base {

/// The top-level keys of a TOML text with their scalar values written as text, in the file's order. Throws
/// Error{invalid_argument} with path and line for what is not TOML, and for tables, arrays and dates.
std::vector<std::pair<std::string, std::string>> read_toml_keys(const SettingsFile& file);

}  // namespace tugline::base

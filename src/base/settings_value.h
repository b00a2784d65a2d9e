// SPDX-License-Identifier: Apache-2.0
// Texts of setting values, both ways.
#pragma once

#include <string>
#include <string_view>

#include "base/settings.h"

namespace tugline::base {

/// Reads `text` into the row's field. Throws Error{invalid_argument}; `source` ("TUGLINE_RANK", "rank in
/// /etc/tugline.toml") names the place in it.
void set_value(Settings& settings, const SettingRow& row, std::string_view text, std::string_view source);

/// The field's value as it could be written again; empty when unset.
std::string get_value(const Settings& settings, const SettingRow& row);

/// What set_value accepts, for messages and the page: "an integer from 0 to 65535".
std::string allowed_values(const SettingRow& row);

}  // namespace tugline::base

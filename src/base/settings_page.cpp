// SPDX-License-Identifier: Apache-2.0
// docs/settings.md from the table.
#include <fmt/core.h>

#include "base/settings.h"
#include "base/settings_value.h"

namespace tugline::base {

std::string describe_settings_markdown() {
  std::string page =
      "# Settings\n\n"
      "Made from the table in `src/base/settings_table.cpp`; a test compares the two.\n\n"
      "Precedence: the call, the environment, the file, the default. The file is TOML with one `name = "
      "value`\n"
      "per line: `TUGLINE_CONFIG_FILE`, else the first that exists of `$XDG_CONFIG_HOME/tugline.toml`\n"
      "(`~/.config` without it) and `/etc/tugline.toml`. `tugline config` prints every value with its "
      "origin.\n"
      "An empty variable counts as unset; unknown names give one warning. Without a key: read from the "
      "environment only.\n\n"
      "| variable | key | type | default | allowed | meaning |\n"
      "|---|---|---|---|---|---|\n";
  const Settings defaults;
  for (const auto& row : settings_table()) {
    const auto value = get_value(defaults, row);
    const auto shown = value.empty() ? std::string(row.unset) : fmt::format("`{}`", value);
    const auto unit = row.unit.empty() || row.unit == type_of(row) ? "" : fmt::format(" ({})", row.unit);
    const auto key = row.place == SettingPlace::environment ? "-" : fmt::format("`{}`", row.name);
    page += fmt::format("| `{}` | {} | {}{} | {} | {} | {} |\n", variable_of(row), key, type_of(row), unit,
                        shown, allowed_values(row), meaning_of(row));
  }
  return page;
}

}  // namespace tugline::base

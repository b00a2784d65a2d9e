// SPDX-License-Identifier: Apache-2.0
#include "base/settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/file.h"
#include "base/settings_value.h"
#include "base/toml_file.h"
#include "tugline/error.h"

extern char** environ;

namespace tugline::base {
namespace {

constexpr std::string_view kPrefix = "TUGLINE_";

/// Index of the row, or the table's size.
std::size_t index_of(std::string_view name) {
  std::size_t index = 0;
  for (const auto& row : settings_table()) {
    if (row.name == name) break;
    ++index;
  }
  return index;
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

void apply_file(Settings& settings, const SettingsFile& file, std::vector<std::string>& unknown) {
  const auto table = settings_table();
  settings.file = file.path;
  for (const auto& [key, value] : read_toml_keys(file)) {
    const auto index = index_of(key);
    if (index == table.size()) {
      unknown.push_back(fmt::format("{} in {}", key, file.path));
      continue;
    }
    // Each process's own, or which file is read: one file for all cannot say it.
    if (table[index].place == SettingPlace::environment)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} in {} is a setting that is read only from the environment", key, file.path),
                  fmt::format("remove that line, and set {}", variable_of(table[index])),
                  {.operation = "reading settings"});
    set_value(settings, table[index], value, fmt::format("{} in {}", key, file.path));
    settings.origins[index] = Origin::file;
  }
}

void apply_environment(Settings& settings, const Environment& environment,
                       std::vector<std::string>& unknown) {
  const auto table = settings_table();
  std::map<std::string, std::size_t> rows;
  for (std::size_t index = 0; index < table.size(); ++index) rows[variable_of(table[index])] = index;
  for (auto entry = environment.lower_bound(std::string(kPrefix)); entry != environment.end(); ++entry) {
    const auto& [variable, value] = *entry;
    if (variable.compare(0, kPrefix.size(), kPrefix) != 0) break;
    const auto row = rows.find(variable);
    if (row == rows.end()) {
      unknown.push_back(variable);
      continue;
    }
    // An empty variable is what shells leave where unsetting was meant.
    if (value.empty()) continue;
    set_value(settings, table[row->second], value, variable);
    settings.origins[row->second] = Origin::environment;
  }
}

std::string variable_or(const Environment& environment, const std::string& name, std::string fallback) {
  const auto entry = environment.find(name);
  return entry == environment.end() || entry->second.empty() ? std::move(fallback) : entry->second;
}

/// The file's text, or none when there is no such file.
std::optional<SettingsFile> find_file(const std::string& path) {
  try {
    return SettingsFile{path, read_file(path, "the settings file", Pipes::refused)};
  } catch (const Error& error) {
    if (error.code() == ErrorCode::not_found) return std::nullopt;
    throw Error(error.code(), error.what_failed(),
                error.what_to_do() + "; TUGLINE_CONFIG_FILE says which one is read",
                {.operation = "reading settings", .native_code = error.context().native_code});
  }
}

}  // namespace

Origin Settings::origin(std::string_view name) const {
  const auto index = index_of(name);
  if (index < origins.size()) return origins[index];
  throw Error(ErrorCode::invalid_argument, fmt::format("there is no setting \"{}\"", name),
              "see `tugline config` for the names", {.operation = "settings"});
}

Environment process_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

LoadedSettings make_settings(const Environment& environment, const std::optional<SettingsFile>& file) {
  LoadedSettings loaded;
  loaded.settings.origins.assign(settings_table().size(), Origin::default_value);
  std::vector<std::string> unknown;
  if (file) apply_file(loaded.settings, *file, unknown);
  apply_environment(loaded.settings, environment, unknown);
  if (!unknown.empty())
    loaded.warnings.push_back(fmt::format(
        "unknown settings are ignored: {}; `tugline config` lists the known ones", join(unknown)));
  return loaded;
}

std::optional<SettingsFile> find_settings_file(const Environment& environment,
                                               std::vector<std::string>& warnings) {
  if (const auto named = variable_or(environment, "TUGLINE_CONFIG_FILE", ""); !named.empty()) {
    if (auto file = find_file(named)) return file;
    throw Error(ErrorCode::not_found,
                fmt::format("TUGLINE_CONFIG_FILE is \"{}\", which does not exist", named),
                "name a file that exists, or unset the variable", {.operation = "reading settings"});
  }
  const auto home = variable_or(environment, "HOME", "");
  const auto user = variable_or(environment, "XDG_CONFIG_HOME", home.empty() ? "" : home + "/.config");
  std::vector<std::string> places{"/etc/tugline.toml"};
  if (!user.empty()) places.insert(places.begin(), user + "/tugline.toml");
  for (const auto& place : places) {
    try {
      if (auto file = find_file(place)) return file;
    } catch (const Error& error) {
      // Nobody named it: under another user, or in a service, there may be no way to look.
      warnings.push_back(fmt::format("{}{}; going on without it", error.what_failed(),
                                     error.context().native_code == EACCES ? ": permission denied" : ""));
    }
  }
  return std::nullopt;
}

const Settings& settings() {
  static const Settings kSettings = [] {
    const auto environment = process_environment();
    std::vector<std::string> warnings;
    auto loaded = make_settings(environment, find_settings_file(environment, warnings));
    configure_log(loaded.settings.debug, loaded.settings.log_file);
    for (const auto& warning : warnings) log(LogLevel::warn, "{}", warning);
    for (const auto& warning : loaded.warnings) log(LogLevel::warn, "{}", warning);
    return std::move(loaded.settings);
  }();
  return kSettings;
}

std::vector<SettingView> view_settings(const Settings& settings) {
  std::vector<SettingView> views;
  for (const auto& row : settings_table()) {
    auto value = get_value(settings, row);
    if (row.secrecy == Secrecy::secret && !value.empty()) value = "(set)";
    views.push_back({&row, std::move(value), settings.origin(row.name)});
  }
  return views;
}

std::string same_values(const Settings& settings) {
  std::string text;
  for (const auto& row : settings_table())
    if (row.same_on_all_ranks) text += get_value(settings, row) + "\n";
  return text;
}

std::string describe_different_values(std::string_view first, std::string_view second,
                                      std::string_view first_place, std::string_view second_place) {
  const auto take_line = [](std::string_view& text) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    return line.empty() ? std::string_view("unset") : line;
  };
  std::string found;
  for (const auto& row : settings_table()) {
    if (!row.same_on_all_ranks) continue;
    const auto one = take_line(first);
    const auto other = take_line(second);
    if (one != other)
      found += fmt::format("{}{} is {} on {} and {} on {}", found.empty() ? "" : "; ", variable_of(row), one,
                           first_place, other, second_place);
  }
  return found;
}

}  // namespace tugline::base

// SPDX-License-Identifier: Apache-2.0
// Every setting of tugline, in one table. A row makes the environment variable TUGLINE_<NAME>, the key <name>
// of the TOML file, the line of `tugline config` and the row of docs/settings.md. Precedence: call,
// environment, file, default.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/log.h"

namespace tugline::base {

/// Where a value came from.
enum class Origin : std::uint8_t { default_value, file, environment };
std::string_view name_of(Origin origin) noexcept;  ///< "default", "file", "environment"

struct Settings {
  // Launch and identity; unset ones are found as docs/concepts.md says.
  std::string job;
  std::optional<std::uint32_t> rank;
  std::optional<std::uint32_t> size;
  std::optional<std::uint32_t> local_rank;
  std::string runtime_dir;
  std::string socket_path;
  std::string token;
  std::string broker_bin;
  bool spawn_broker = true;
  std::string config_file;
  // Talking about itself.
  LogLevel debug = LogLevel::warn;
  std::string log_file;
  // Waiting and failing.
  std::chrono::milliseconds report_after{1000};
  std::chrono::milliseconds fail_after{0};
  std::uint32_t heartbeat_ms = 20;
  std::uint32_t spin_us = 1000;
  // Collectives.
  bool check = true;
  bool zero_copy = true;
  bool deterministic = true;
  std::string plan;
  std::uint64_t scratch_bytes = 2U << 20U;
  // Shared memory that the broker lets a member or a job deposit; 0: as much as there is.
  std::uint64_t member_limit_bytes = 0;
  std::uint64_t job_limit_bytes = 0;
  // Others' memory that a member keeps mapped; 0: no limit.
  std::uint64_t import_limit_bytes = 0;
  std::uint32_t import_limit_mappings = 1024;
  // Machine.
  std::string topology;
  std::uint32_t host_devices = 1;
  std::string kernel;

  /// Where the value of the setting `name` came from. Error{invalid_argument} when there is no such setting.
  Origin origin(std::string_view name) const;
  std::vector<Origin> origins;  ///< one per row of settings_table()
  std::string file;             ///< path of the TOML file that was read, empty if none
};

/// Which member of Settings a row fills; its type decides how the text is read.
using SettingField = std::variant<std::string Settings::*, bool Settings::*, std::uint32_t Settings::*,
                                  std::uint64_t Settings::*, std::optional<std::uint32_t> Settings::*,
                                  std::chrono::milliseconds Settings::*, LogLevel Settings::*>;

enum class Secrecy : std::uint8_t { open, secret };

enum class SettingPlace : std::uint8_t { anywhere, environment };

/// Ranks of a job: each is a member of the broker on this host (core::kMaxMembers).
inline constexpr int kMostRanks = 256;

struct SettingRow {
  std::string_view name;  ///< snake_case: the TOML key; upper case after TUGLINE_ it is the variable
  SettingField field;
  std::string_view unit;   ///< "us", "bytes", ...; empty if none
  std::string_view unset;  ///< how an empty default is described; empty if the default is a value
  std::string_view help;   ///< one sentence
  double smallest = 0;     ///< of numbers
  double largest = 4.0e9;  ///< of numbers
  Secrecy secrecy = Secrecy::open;
  std::span<const std::string_view> words = {};  ///< the only texts that are allowed; empty: any
  SettingPlace place = SettingPlace::anywhere;   ///< where it may stand
  bool same_on_all_ranks = false;  ///< ranks work together only where it is equal; compared as they meet
};

std::span<const SettingRow> settings_table();
std::string variable_of(const SettingRow& row);            ///< "TUGLINE_SPIN_US"
std::string_view type_of(const SettingRow& row) noexcept;  ///< "text", "on|off", "integer", "size", ...
std::string meaning_of(const SettingRow& row);  ///< help, and whether it has to be the same on all ranks

using Environment = std::map<std::string, std::string>;
/// Copy of this process's environment.
Environment process_environment();

struct SettingsFile {
  std::string path;  ///< for messages
  std::string text;  ///< TOML
};

struct LoadedSettings {
  Settings settings;
  std::vector<std::string> warnings;
};

/// Builds settings from an environment and the text of a TOML file; reads nothing else. Throws
/// Error{invalid_argument} that names variable or key, value, and what is allowed.
LoadedSettings make_settings(const Environment& environment, const std::optional<SettingsFile>& file);

/// Finds and reads the file: TUGLINE_CONFIG_FILE (must exist), else the first that exists of
/// $XDG_CONFIG_HOME/tugline.toml ($HOME/.config without it) and /etc/tugline.toml. Throws Error{not_found},
/// Error{permission_denied} or Error{system} for the named one; another that cannot be read counts as absent,
/// with a line in `warnings`.
std::optional<SettingsFile> find_settings_file(const Environment& environment,
                                               std::vector<std::string>& warnings);

/// The process's settings, read once at the first call, which also configures the log and writes the
/// warnings. Thread-safe. Throws as make_settings and find_settings_file do; then the next call tries again.
const Settings& settings();

/// One line of `tugline config`.
struct SettingView {
  const SettingRow* row;
  std::string value;  ///< as it would be written; "(set)" for a secret
  Origin origin;
};
std::vector<SettingView> view_settings(const Settings& settings);

/// The values of the settings that are to be the same on all ranks, a line each, in the table's order.
std::string same_values(const Settings& settings);
/// Which lines of two such texts differ: "TUGLINE_PLAN is ring on rank 0 and unset on rank 2; ..."; empty if
/// none.
std::string describe_different_values(std::string_view first, std::string_view second,
                                      std::string_view first_place, std::string_view second_place);

/// The page docs/settings.md, made from the table.
std::string describe_settings_markdown();

}  // namespace tugline::base

// SPDX-License-Identifier: Apache-2.0
#include "base/settings_value.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>

#include "base/kernel.h"
#include "tugline/error.h"

namespace tugline::base {
namespace {

struct Suffix {
  std::string_view text;
  std::uint64_t factor;
};
constexpr Suffix kSizes[] = {{"", 1},
                             {"B", 1},
                             {"K", 1ULL << 10U},
                             {"Ki", 1ULL << 10U},
                             {"KiB", 1ULL << 10U},
                             {"M", 1ULL << 20U},
                             {"Mi", 1ULL << 20U},
                             {"MiB", 1ULL << 20U},
                             {"G", 1ULL << 30U},
                             {"Gi", 1ULL << 30U},
                             {"GiB", 1ULL << 30U}};
constexpr Suffix kTimes[] = {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"min", 60'000}, {"h", 3'600'000}};
constexpr Suffix kPlain[] = {{"", 1}};

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

std::string number_text(double value) {
  return fmt::format("{:.0f}", value);
}

/// One row's reader: a call operator per type of field.
struct Reader {
  Settings& settings;
  const SettingRow& row;
  std::string_view text;
  std::string_view source;

  [[noreturn]] void refuse() const {
    const std::string_view shown = row.secrecy == Secrecy::secret ? "(secret)" : text;
    throw Error(ErrorCode::invalid_argument, fmt::format("{} is \"{}\"", source, shown),
                fmt::format("set it to {}", allowed_values(row)), {.operation = "reading settings"});
  }

  std::uint64_t number(std::span<const Suffix> suffixes) const {
    std::uint64_t value = 0;
    const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failure != std::errc{}) refuse();
    const std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
    if (value == 0 && unit.empty() && row.smallest <= 0) return 0;  // zero needs no unit
    const auto suffix = std::find_if(suffixes.begin(), suffixes.end(),
                                     [&](const Suffix& candidate) { return candidate.text == unit; });
    if (suffix == suffixes.end() || value > UINT64_MAX / suffix->factor) refuse();
    value *= suffix->factor;
    const auto real = static_cast<double>(value);
    if (real < row.smallest || real > row.largest) refuse();
    return value;
  }

  bool is_usable_kernel() const {
    const auto dot = text.find('.');
    const auto digits = [](std::string_view part) {
      return !part.empty() && part.size() < 6 &&
             std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    };
    return dot != std::string_view::npos && digits(text.substr(0, dot)) && digits(text.substr(dot + 1)) &&
           version_at_least(text, "", kOldestKernelMajor, kOldestKernelMinor);
  }

  void operator()(std::string Settings::*field) const {
    if (!text.empty()) {
      if (!row.words.empty() && std::find(row.words.begin(), row.words.end(), text) == row.words.end())
        refuse();
      if (row.name == "kernel" && !is_usable_kernel()) refuse();
    }
    settings.*field = std::string(text);
  }
  void operator()(bool Settings::*field) const {
    const auto word = lower(text);
    if (word == "on" || word == "1" || word == "true" || word == "yes") {
      settings.*field = true;
    } else if (word == "off" || word == "0" || word == "false" || word == "no") {
      settings.*field = false;
    } else {
      refuse();
    }
  }
  void operator()(std::uint32_t Settings::*field) const {
    settings.*field = static_cast<std::uint32_t>(number(kPlain));
  }
  void operator()(std::optional<std::uint32_t> Settings::*field) const {
    settings.*field = static_cast<std::uint32_t>(number(kPlain));
  }
  void operator()(std::uint64_t Settings::*field) const { settings.*field = number(kSizes); }
  void operator()(std::chrono::milliseconds Settings::*field) const {
    settings.*field = std::chrono::milliseconds(number(kTimes));
  }
  void operator()(LogLevel Settings::*field) const {
    const auto word = lower(text);
    for (const auto level :
         {LogLevel::error, LogLevel::warn, LogLevel::info, LogLevel::debug, LogLevel::trace}) {
      if (word == name_of(level)) {
        settings.*field = level;
        return;
      }
    }
    refuse();
  }
};

struct Writer {
  const Settings& settings;

  std::string operator()(std::string Settings::*field) const { return settings.*field; }
  std::string operator()(bool Settings::*field) const { return settings.*field ? "on" : "off"; }
  std::string operator()(std::uint32_t Settings::*field) const { return std::to_string(settings.*field); }
  std::string operator()(std::optional<std::uint32_t> Settings::*field) const {
    return settings.*field ? std::to_string(*(settings.*field)) : "";
  }
  std::string operator()(std::uint64_t Settings::*field) const {
    const auto value = settings.*field;
    for (const auto& [unit, factor] :
         {Suffix{"Gi", 1ULL << 30U}, Suffix{"Mi", 1ULL << 20U}, Suffix{"Ki", 1ULL << 10U}})
      if (value != 0 && value % factor == 0) return fmt::format("{}{}", value / factor, unit);
    return std::to_string(value);
  }
  std::string operator()(std::chrono::milliseconds Settings::*field) const {
    const auto count = (settings.*field).count();
    if (count == 0) return "0";
    return count % 1000 == 0 ? fmt::format("{}s", count / 1000) : fmt::format("{}ms", count);
  }
  std::string operator()(LogLevel Settings::*field) const { return std::string(name_of(settings.*field)); }
};

struct Allowed {
  const SettingRow& row;

  std::string range(std::string_view what) const {
    return fmt::format("{} from {} to {}", what, number_text(row.smallest), number_text(row.largest));
  }
  std::string operator()(std::string Settings::*) const {
    if (row.name == "kernel")
      return fmt::format("a version from {}.{} on, such as 5.15", kOldestKernelMajor, kOldestKernelMinor);
    if (row.words.empty()) return "a text";
    std::string choice;
    for (const auto& word : row.words)
      choice += fmt::format("{}{}", choice.empty() ? "" : &word == &row.words.back() ? " or " : ", ", word);
    return choice;
  }
  std::string operator()(bool Settings::*) const { return "on or off"; }
  std::string operator()(std::uint32_t Settings::*) const { return range("an integer"); }
  std::string operator()(std::optional<std::uint32_t> Settings::*) const { return range("an integer"); }
  std::string operator()(std::uint64_t Settings::*) const {
    return range("a size in bytes") + ", with K, M or G for 2^10, 2^20, 2^30";
  }
  std::string operator()(std::chrono::milliseconds Settings::*) const {
    return "a time with its unit (ms, s, m, h), or 0";
  }
  std::string operator()(LogLevel Settings::*) const { return "error, warn, info, debug or trace"; }
};

}  // namespace

void set_value(Settings& settings, const SettingRow& row, std::string_view text, std::string_view source) {
  std::visit(Reader{settings, row, text, source}, row.field);
}

std::string get_value(const Settings& settings, const SettingRow& row) {
  return std::visit(Writer{settings}, row.field);
}

std::string allowed_values(const SettingRow& row) {
  return std::visit(Allowed{row}, row.field);
}

}  // namespace tugline::base

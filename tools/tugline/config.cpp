// SPDX-License-Identifier: Apache-2.0
// `tugline config`: every setting with value, origin, unit and meaning.
#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/settings.h"
#include "commands.h"
#include "standard_output.h"

namespace tugline::cli {
namespace {

using base::Json;

std::string shown(const base::SettingView& view) {
  if (view.value.empty()) return std::string(view.row->unset.empty() ? "" : view.row->unset);
  return view.value;
}

std::string json_of(const std::vector<base::SettingView>& views, const std::string& file) {
  Json rows = Json::array();
  for (const auto& view : views) {
    Json row = Json::object();
    row["name"] = view.row->name;
    row["variable"] = base::variable_of(*view.row);
    row["type"] = base::type_of(*view.row);
    row["value"] = view.value;
    row["origin"] = base::name_of(view.origin);
    row["unit"] = view.row->unit;
    row["same_on_all_ranks"] = view.row->same_on_all_ranks;
    row["help"] = view.row->help;
    rows.push_back(std::move(row));
  }
  Json document = Json::object();
  document["file"] = file.empty() ? Json() : Json(file);
  document["settings"] = std::move(rows);
  return document.dump(2) + "\n";
}

std::string text_of(const std::vector<base::SettingView>& views, const std::string& file) {
  std::size_t name_width = 0;
  std::size_t value_width = 0;
  for (const auto& view : views) {
    name_width = std::max(name_width, base::variable_of(*view.row).size());
    value_width = std::max(value_width, shown(view).size() + 1 + view.row->unit.size());
  }
  std::string text = fmt::format("# file: {}\n", file.empty() ? "none" : file);
  text += fmt::format("# {:<{}}  {:<{}}  {:<11}  meaning\n", "variable", name_width - 2, "value", value_width,
                      "origin");
  for (const auto& view : views) {
    std::string value = shown(view);
    if (!view.value.empty() && !view.row->unit.empty()) value += fmt::format(" {}", view.row->unit);
    text += fmt::format("{:<{}}  {:<{}}  {:<11}  {}\n", base::variable_of(*view.row), name_width, value,
                        value_width, base::name_of(view.origin), base::meaning_of(*view.row));
  }
  return text;
}

}  // namespace

int config(const ConfigOptions& options) {
  const auto& settings = base::settings();
  auto views = base::view_settings(settings);
  write_output("the settings", options.form == OutputForm::json ? json_of(views, settings.file)
                                                                : text_of(views, settings.file));
  return kExitOk;
}

}  // namespace tugline::cli

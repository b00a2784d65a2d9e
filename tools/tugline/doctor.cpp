// SPDX-License-Identifier: Apache-2.0
// `tugline doctor`: checks the machine; each finding with evidence and fix.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/json.h"
#include "base/settings.h"
#include "commands.h"
#include "doctor/finding.h"
#include "doctor/job.h"
#include "launch/machine.h"
#include "standard_output.h"
#include "tugline/error.h"

namespace tugline::cli {
namespace {

using base::Json;

std::string_view name_of(Level level) noexcept {
  switch (level) {
    case Level::ok:
      return "ok";
    case Level::note:
      return "note";
    case Level::serious:
      return "serious";
  }
  return "?";
}

std::string_view colour_of(Level level) noexcept {
  switch (level) {
    case Level::ok:
      return "\033[32m";
    case Level::note:
      return "\033[33m";
    case Level::serious:
      return "\033[31m";
  }
  return "";
}

/// The other checks read the settings; wrong ones are a finding of their own and end the examination.
Finding check_settings() {
  Finding finding{"settings", Level::ok, "", ""};
  try {
    const auto& settings = base::settings();
    auto changed = std::count_if(settings.origins.begin(), settings.origins.end(),
                                 [](base::Origin origin) { return origin != base::Origin::default_value; });
    finding.evidence = fmt::format("{} settings differ from their default; file: {}", changed,
                                   settings.file.empty() ? "none" : settings.file);
  } catch (const Error& error) {
    finding.level = Level::serious;
    finding.evidence = error.what_failed();
    finding.fix = error.what_to_do();
  }
  return finding;
}

std::vector<Finding> examine(int ranks) {
  std::vector<Finding> findings{check_settings()};
  if (findings.front().level == Level::serious) return findings;
  for (auto&& group :
       {check_kernel(), check_limits(ranks), check_placement(ranks), check_gpus(), check_places()}) {
    findings.insert(findings.end(), group.begin(), group.end());
  }
  return findings;
}

std::string json_of(const std::vector<Finding>& findings, bool healthy) {
  Json rows = Json::array();
  for (const auto& finding : findings) {
    Json row = Json::object();
    row["check"] = finding.check;
    row["level"] = name_of(finding.level);
    row["evidence"] = finding.evidence;
    row["fix"] = finding.fix.empty() ? Json() : Json(finding.fix);
    rows.push_back(std::move(row));
  }
  Json document = Json::object();
  document["ok"] = healthy;
  document["findings"] = std::move(rows);
  return document.dump(2) + "\n";
}

std::string text_of(const std::vector<Finding>& findings) {
  bool colour = use_colour(1);
  std::string text;
  for (const auto& finding : findings) {
    text += fmt::format("{}{:<8}{}{:<20}{}\n", colour ? colour_of(finding.level) : "", name_of(finding.level),
                        colour ? "\033[0m" : "", finding.check, finding.evidence);
    if (!finding.fix.empty()) text += fmt::format("{:<8}{:<20}fix: {}\n", "", "", finding.fix);
  }
  return text;
}

}  // namespace

int doctor(const DoctorOptions& options) {
  if (!options.job.empty()) {
    const auto account = look_at_job(options.job);
    write_output("the accounts", options.form == OutputForm::json ? json_of(account) : text_of(account));
    return kExitOk;
  }
  int ranks = options.ranks > 0 ? options.ranks : static_cast<int>(allowed_cpus().size());
  auto findings = examine(ranks);
  bool healthy = std::none_of(findings.begin(), findings.end(),
                              [](const Finding& finding) { return finding.level == Level::serious; });
  write_output("the findings",
               options.form == OutputForm::json ? json_of(findings, healthy) : text_of(findings));
  return healthy ? kExitOk : kExitFailed;
}

}  // namespace tugline::cli

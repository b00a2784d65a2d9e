// SPDX-License-Identifier: Apache-2.0
// Texts of --help that are not about one option: what a command does, its rules, and examples.
#pragma once

#include <string>
#include <string_view>

namespace tugline::cli::help {

/// "tugline 0.1.0"
std::string_view version() noexcept;

extern const std::string_view kSummary, kExamples;
extern const std::string_view kRunSummary, kRunExamples;
extern const std::string_view kBenchSummary, kBenchExamples;
extern const std::string_view kPlanSummary, kPlanExamples;
extern const std::string_view kDoctorSummary, kDoctorExamples;
extern const std::string_view kConfigSummary, kConfigExamples;
extern const std::string_view kBrokerSummary, kBrokerExamples;

}  // namespace tugline::cli::help

// SPDX-License-Identifier: Apache-2.0
#include "doctor/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <system_error>

#include "base/json.h"
#include "base/settings.h"
#include "broker/process_status.h"
#include "usage.h"
#include "values.h"

namespace tugline::cli {
namespace {

using base::Json;

/// From /proc; none when the process is gone, another user's, or of another PID namespace.
std::optional<ProcessDescriptors> descriptors_of(const broker::MemberAccount& member) {
  const auto own_space = broker::own_identity().pid_namespace;
  if (own_space == 0 || member.pid_namespace != own_space || member.pid == 0) return std::nullopt;
  const auto process = fmt::format("/proc/{}", member.pid);
  std::error_code failed;
  std::filesystem::directory_iterator entries(process + "/fd", failed);
  if (failed) return std::nullopt;
  ProcessDescriptors out;
  out.open = static_cast<std::uint64_t>(std::distance(begin(entries), end(entries)));
  std::ifstream limits(process + "/limits");
  constexpr std::string_view kRow = "Max open files";
  for (std::string line; std::getline(limits, line);)
    if (line.starts_with(kRow)) std::istringstream(line.substr(kRow.size())) >> out.limit;
  return out;
}

std::string limit_text(std::uint64_t bytes) {
  return bytes == 0 ? "no limit" : human_bytes(bytes);
}

Json json_of(const core::UsageReport& usage) {
  Json out = Json::object();
  out["scratch_bytes"] = usage.scratch_bytes;
  out["buffer_bytes"] = usage.buffer_bytes;
  out["named_bytes"] = usage.named_bytes;
  out["imported_bytes"] = usage.imported_bytes;
  out["deposited_bytes"] = usage.member_bytes();
  out["segments"] = usage.member_segments;
  out["references"] = usage.member_references;
  return out;
}

std::string row_of(std::string_view rank, std::string_view member, std::string_view pid,
                   const core::UsageReport& usage, std::string_view descriptors) {
  return fmt::format("{:>5}{:>8}{:>9}{:>12}{:>12}{:>12}{:>12}{:>10}{:>14}\n", rank, member, pid,
                     human_bytes(usage.scratch_bytes), human_bytes(usage.buffer_bytes),
                     human_bytes(usage.named_bytes), human_bytes(usage.imported_bytes), usage.member_segments,
                     descriptors);
}

}  // namespace

JobView look_at_job(const std::string& job) {
  const auto& settings = base::settings();
  // As joining does: the configured socket belongs to the configured job.
  const auto socket = job == settings.job ? settings.socket_path : std::string();
  auto observer = [&]() -> broker::Observer {
    try {
      return {socket, job, settings.token};
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_found) throw;
      throw UsageError(ErrorCode::not_found, error.what_failed(), error.what_to_do(),
                       {.operation = "doctor --job"});
    }
  }();
  JobView view{observer.look(), {}};
  std::transform(view.account.members.begin(), view.account.members.end(),
                 std::back_inserter(view.descriptors), descriptors_of);
  return view;
}

std::string text_of(const JobView& view) {
  const auto& [job, world_size, members, left] = view.account;
  auto text = fmt::format(
      "job {}: {} of {} ranks are there; {} segments hold {} (of {} for the job, {} per rank)\n"
      "broker: process {}, {} of {} descriptors\n",
      job, members.size(), world_size, left.job_segments, human_bytes(left.job_bytes),
      limit_text(left.job_limit_bytes), limit_text(left.member_limit_bytes), left.broker_pid,
      left.broker_descriptors, left.broker_descriptor_limit);
  text += fmt::format("{:>5}{:>8}{:>9}{:>12}{:>12}{:>12}{:>12}{:>10}{:>14}\n", "rank", "member", "pid",
                      "scratch", "buffers", "named", "imported", "segments", "descriptors");
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto& member = members[i];
    const auto& open = view.descriptors[i];
    text += row_of(fmt::format("{}", member.rank), fmt::format("{}", member.member),
                   fmt::format("{}", member.pid), member.usage,
                   open ? fmt::format("{} of {}", open->open, open->limit) : "not visible");
  }
  if (left.member_segments != 0) text += row_of("gone", "-", "-", left, "-");
  return text;
}

std::string json_of(const JobView& view) {
  const auto& account = view.account;
  Json rows = Json::array();
  for (std::size_t i = 0; i < account.members.size(); ++i) {
    const auto& member = account.members[i];
    auto row = json_of(member.usage);
    row["rank"] = member.rank;
    row["member"] = member.member;
    row["pid"] = member.pid;
    const auto& open = view.descriptors[i];
    row["descriptors"] = open ? Json(open->open) : Json();
    row["descriptor_limit"] = open ? Json(open->limit) : Json();
    rows.push_back(std::move(row));
  }
  Json broker = Json::object();
  broker["pid"] = account.left.broker_pid;
  broker["descriptors"] = account.left.broker_descriptors;
  broker["descriptor_limit"] = account.left.broker_descriptor_limit;
  Json document = Json::object();
  document["job"] = account.job;
  document["world_size"] = account.world_size;
  document["bytes"] = account.left.job_bytes;
  document["segments"] = account.left.job_segments;
  document["limit_bytes"] = account.left.job_limit_bytes;
  document["member_limit_bytes"] = account.left.member_limit_bytes;
  document["broker"] = std::move(broker);
  document["members"] = std::move(rows);
  document["gone"] = json_of(account.left);
  return document.dump(2) + "\n";
}

}  // namespace tugline::cli

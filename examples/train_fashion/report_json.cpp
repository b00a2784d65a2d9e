// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "output.h"
#include "report.h"

namespace train_fashion {
namespace {

using Json = nlohmann::ordered_json;

std::string hex(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

/// Unknown times are null.
Json microseconds(double value) {
  return value < 0 ? Json() : Json(value);
}

Json to_json(const MembershipChange& change) {
  Json lost = Json::array();
  for (const auto& one : change.lost) lost.push_back({{"rank", one.rank}, {"reason", one.reason}});
  return {{"step", change.step},
          {"redone", change.redone},
          {"lost", lost},
          {"size_after", change.size_after},
          {"agreement", change.agreement},
          {"epoch", change.epoch}};
}

Json to_json(const RankReport& rank) {
  return {{"rank", rank.rank},
          {"pid", rank.pid},
          {"images", rank.images},
          {"elapsed_seconds", rank.elapsed_s},
          {"waiting_seconds", rank.waiting_s},
          {"steps", rank.steps},
          {"overlapped_steps", rank.overlapped_steps},
          {"parameters_hash", hex(rank.parameters_hash)},
          {"version", rank.version},
          {"outcomes_hash", hex(rank.outcomes_hash)},
          {"noticed_us", microseconds(rank.noticed_us)},
          {"agreed_us", microseconds(rank.agreed_us)},
          {"next_all_reduce_us", microseconds(rank.next_reduced_us)}};
}

}  // namespace

void write_json(const std::filesystem::path& path, const Options& options, const RunReport& report) {
  Json changes = Json::array();
  for (const auto& change : report.changes) changes.push_back(to_json(change));
  Json ranks = Json::array();
  for (const auto& rank : report.ranks) ranks.push_back(to_json(rank));
  const Json root = {{"options",
                      {{"batch", options.batch},
                       {"micro_batch", options.micro_batch},
                       {"epochs", options.epochs},
                       {"seed", options.seed},
                       {"learning_rate", options.learning_rate},
                       {"device", options.device},
                       {"data", options.data.string()},
                       {"model", options.model}}},
                     {"ranks_at_start", report.ranks_at_start},
                     {"parameters", report.parameters},
                     {"steps", report.steps},
                     {"elapsed_seconds", report.elapsed_s},
                     {"images_per_second", report.images_per_s},
                     {"waiting_share", report.waiting_share()},
                     {"overlapped_share", report.overlapped_share()},
                     {"train_accuracy", report.train_accuracy},
                     {"test_accuracy", report.test_accuracy},
                     {"train_images", report.train_images},
                     {"test_images", report.test_images},
                     {"same_parameters", report.same_parameters()},
                     {"same_outcomes", report.same_outcomes()},
                     {"changes", changes},
                     {"ranks", ranks},
                     {"losses", report.losses}};
  write_whole(path, root.dump(1) + "\n");
}

std::vector<RankAtStep> read_replay(const std::filesystem::path& path) {
  std::vector<RankAtStep> losses;
  try {
    std::ifstream file(path);
    if (!file) {
      throw UsageError(fmt::format("--replay {}: cannot open the file", path.string()),
                       "give a file that --json wrote");
    }
    const Json root = Json::parse(file);
    for (const auto& change : root.at("changes")) {
      const auto step = change.at("step").get<std::uint64_t>();
      // A step that was complete with the lost rank's part counts as one that it left after.
      const std::uint64_t leave_before = change.at("redone").get<bool>() ? step : step + 1;
      for (const auto& lost : change.at("lost")) losses.push_back({lost.at("rank").get<int>(), leave_before});
    }
  } catch (const Json::exception& error) {
    throw UsageError(fmt::format("--replay {}: {}", path.string(), error.what()),
                     "give a file that --json wrote");
  }
  return losses;
}

}  // namespace train_fashion

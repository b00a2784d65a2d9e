// SPDX-License-Identifier: Apache-2.0
// The training as its users run it: real processes under `tugline run`, some of them killed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr const char* kData = "/usr/share/datasets/fashion-mnist";

struct Ended {
  int exit_code;  ///< 128 + signal for a killed one
  std::string output;
};

Ended run(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1 </dev/null").c_str(), "r");
  if (pipe == nullptr) return {-1, "popen failed"};
  std::string output;
  char block[4096];
  while (const std::size_t got = fread(block, 1, sizeof block, pipe)) output.append(block, got);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), output};
}

class Training : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kData)) {
      GTEST_SKIP() << kData << " is missing: apt-get install dataset-fashion-mnist";
    }
    std::string name = "/tmp/train_fashion_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  /// Trains under `tugline run` and gives the JSON report.
  Json train(int ranks, const std::string& name, const std::string& options) {
    const auto json = folder_ / (name + ".json");
    const Ended ended = run(fmt::format("{} run -n {} --allow-lost -- {} --json {} {}", TUGLINE_PROGRAM,
                                        ranks, TRAIN_FASHION_PROGRAM, json.string(), options));
    EXPECT_EQ(ended.exit_code, 0) << name << ":\n" << ended.output;
    std::ifstream file(json);
    if (!file) {
      ADD_FAILURE() << name << " wrote no report:\n" << ended.output;
      return {};
    }
    return Json::parse(file);
  }

  std::filesystem::path folder_;
};

/// What is computed, rather than how ranks meet and part: no kernel changes it, so `scripts/test kernel`
/// leaves it out.
class TrainingBits : public Training {};

TEST_F(TrainingBits, FourRanksComputeTheBitsOfOne) {
  const Json one = train(1, "one", "--steps 50");
  const Json four = train(4, "four", "--steps 50");
  ASSERT_FALSE(one.is_null() || four.is_null());
  ASSERT_EQ(one["losses"].size(), 50U);
  ASSERT_EQ(four["losses"].size(), 50U);
  EXPECT_EQ(one["losses"], four["losses"]);
  EXPECT_EQ(one["ranks"][0]["parameters_hash"], four["ranks"][0]["parameters_hash"]);
  EXPECT_LT(one["losses"].back(), 1.0) << "it has not learnt anything";
  EXPECT_TRUE(four["same_parameters"]);
  EXPECT_EQ(four["ranks"].size(), 4U);
  EXPECT_GE(four["overlapped_share"], 0.9);
}

TEST_F(TrainingBits, OneRankComputesTheBitsOfManyWithTheirShareAsMicroBatch) {
  for (const auto& [ranks, micro_batch] : {std::pair(2, 25), std::pair(3, 17), std::pair(5, 10)}) {
    const auto many = train(ranks, fmt::format("{}", ranks), "--steps 6 --batch 50");
    const auto one = train(1, "one", fmt::format("--steps 6 --batch 50 --micro-batch {}", micro_batch));
    ASSERT_FALSE(one.is_null() || many.is_null());
    EXPECT_EQ(one["losses"], many["losses"]) << ranks << " ranks";
    EXPECT_EQ(one["ranks"][0]["parameters_hash"], many["ranks"][0]["parameters_hash"]) << ranks << " ranks";
  }
}

// 2 ranks add the same four gradients in another order, 3 cut the batch in other places: rounding, but no
// more as long as training has not amplified it.
TEST_F(TrainingBits, OtherNumbersOfRanksStartWithDifferencesOfRounding) {
  const Json one = train(1, "one", "--steps 8");
  ASSERT_FALSE(one.is_null());
  for (int ranks : {2, 3}) {
    const Json other = train(ranks, fmt::format("{}", ranks), "--steps 8");
    ASSERT_FALSE(other.is_null());
    ASSERT_EQ(other["losses"].size(), 8U);
    EXPECT_TRUE(other["same_parameters"]);
    for (std::size_t step = 0; step < 8; ++step) {
      const double loss = one["losses"][step];
      EXPECT_NEAR(other["losses"][step].get<double>(), loss, 1e-5 * loss) << ranks << " ranks, step " << step;
    }
  }
}

TEST_F(Training, AKilledRankChangesWhatItsReplayDoes) {
  // Four ranks have one micro-batch each, the three survivors two: bits that differ would show in the replay.
  const std::string common = "--steps 12 --batch 50 --micro-batch 13 ";
  const Json whole = train(4, "whole", common);
  const Json killed = train(4, "killed", common + "--kill 2@6");
  const Json replayed = train(4, "replayed", common + "--replay " + (folder_ / "killed.json").string());
  ASSERT_FALSE(whole.is_null() || killed.is_null() || replayed.is_null());
  for (const Json* report : {&killed, &replayed}) {
    EXPECT_EQ((*report)["ranks"].size(), 3U);
    ASSERT_EQ((*report)["changes"].size(), 1U);
    const Json& change = (*report)["changes"][0];
    EXPECT_EQ(change["step"], 6);
    EXPECT_TRUE(change["redone"]);
    EXPECT_EQ(change["lost"][0]["rank"], 2);
    EXPECT_TRUE((*report)["same_parameters"]);
    EXPECT_TRUE((*report)["same_outcomes"]);
  }
  EXPECT_EQ(killed["ranks"][0]["parameters_hash"], replayed["ranks"][0]["parameters_hash"]);
  EXPECT_EQ(killed["losses"], replayed["losses"]);
  EXPECT_NE(killed["ranks"][0]["parameters_hash"], whole["ranks"][0]["parameters_hash"])
      << "three ranks sum in another order than four: equal bits mean that nobody was lost";
  for (const auto& rank : killed["ranks"]) {
    ASSERT_FALSE(rank["noticed_us"].is_null());
    EXPECT_GT(rank["noticed_us"], 0.0);
    EXPECT_GT(rank["next_all_reduce_us"], rank["agreed_us"]);
  }
}

TEST_F(Training, TwoDeathsLeaveTheLastOneWithTheJob) {
  const Json report = train(3, "two", "--steps 8 --batch 20 --micro-batch 4 --kill 0@2 --kill 2@5");
  ASSERT_FALSE(report.is_null());
  ASSERT_EQ(report["changes"].size(), 2U);
  ASSERT_EQ(report["ranks"].size(), 1U);
  EXPECT_EQ(report["ranks"][0]["rank"], 1);
  EXPECT_EQ(report["ranks"][0]["version"], 9);
}

TEST_F(TrainingBits, ABatchSmallerThanTheRanksLeavesSomeIdle) {
  const Json one = train(1, "one", "--steps 4 --batch 2");
  const Json three = train(3, "three", "--steps 4 --batch 2");
  ASSERT_FALSE(one.is_null() || three.is_null());
  EXPECT_TRUE(three["same_parameters"]);
  EXPECT_NEAR(one["losses"].back().get<double>(), three["losses"].back().get<double>(), 1e-3);
}

TEST_F(Training, WrongOptionsGiveThreeLinesAndExitCodeTwo) {
  for (const char* options : {"--batch 0",
                              "--micro-batch 0",
                              "--micro-batch ''",
                              "--epochs -1",
                              "--kill 1",
                              "--kill 9@1",
                              "--kill 0@x",
                              "--steps 0",
                              "--device cuda",
                              "--replay /nonexistent.json",
                              "--unknown",
                              "--seed -3",
                              "--json ''",
                              "--data ''",
                              "--model ''",
                              "--replay ''",
                              "--find ''",
                              "--learning-rate nan",
                              "--batch 99999999999",
                              "--progress 0",
                              "--ranks 257"}) {
    const Ended ended = run(fmt::format("{} --steps 1 {}", TRAIN_FASHION_PROGRAM, options));
    EXPECT_EQ(ended.exit_code, 2) << options << "\n" << ended.output;
    EXPECT_EQ(std::count(ended.output.begin(), ended.output.end(), '\n'), 3) << options << "\n"
                                                                             << ended.output;
    EXPECT_THAT(ended.output, AllOf(HasSubstr("tugline: invalid_argument: "), HasSubstr("\n  where: "),
                                    HasSubstr("\n  do: ")));
  }
}

TEST_F(Training, MissingDataNamesThePackage) {
  const Ended ended = run(fmt::format("{} --data {}", TRAIN_FASHION_PROGRAM, folder_.string()));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.output, AllOf(HasSubstr((folder_ / "train-images-idx3-ubyte.gz").string()),
                                  HasSubstr("apt-get install dataset-fashion-mnist")));
}

TEST_F(Training, AnUnwritableReportIsAnErrorBeforeTheTraining) {
  for (const std::string& path : {std::string("/nonexistent/report.json"), folder_.string()}) {
    const Ended ended = run(fmt::format("{} --steps 1 --batch 4 --json {}", TRAIN_FASHION_PROGRAM, path));
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_THAT(ended.output, testing::StartsWith(fmt::format("tugline: system: cannot write {}: ", path)));
    EXPECT_EQ(std::count(ended.output.begin(), ended.output.end(), '\n'), 3) << ended.output;
  }
}

TEST_F(Training, OutputThatCannotBeWrittenIsAnErrorAndTheReportIsKept) {
  const auto json = folder_ / "report.json";
  Ended ended = run(fmt::format("sh -c '{} --steps 1 --batch 4 --json {} > /dev/full'", TRAIN_FASHION_PROGRAM,
                                json.string()));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.output, HasSubstr("cannot write standard output: No space left on device"));
  ended = run(fmt::format("sh -c '{} --help > /dev/full'", TRAIN_FASHION_PROGRAM));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.output, HasSubstr("cannot write standard output: No space left on device"));
  ended = run(fmt::format("{} --steps 1 --batch 4 --json {}", TRAIN_FASHION_PROGRAM, json.string()));
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  std::ifstream file(json);
  EXPECT_EQ(Json::parse(file)["steps"], 1);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

}  // namespace

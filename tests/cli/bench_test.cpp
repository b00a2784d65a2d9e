// SPDX-License-Identifier: Apache-2.0
// `tugline bench` from outside: results right in every form, what it prints, hand-written plans, failures.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "process.h"

namespace tugline::cli {
namespace {

using base::Json;
using testing::HasSubstr;

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> rows_of(const std::string& output) {
  std::vector<std::string> rows;
  std::istringstream stream(output);
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with('#')) rows.push_back(line);
  }
  return rows;
}

struct Form {
  std::string collective;
  std::vector<std::string> options;
  std::size_t rows;
};
class BenchForms : public testing::TestWithParam<Form> {};

TEST_P(BenchForms, EveryResultIsRight) {
  TemporaryDirectory directory;
  auto file = directory.path() / "result.json";
  std::vector<std::string> arguments{"bench",  GetParam().collective, "-n", "2", "-w", "1", "--batch", "2",
                                     "--json", file.string()};
  arguments.insert(arguments.end(), GetParam().options.begin(), GetParam().options.end());
  Command command(arguments);
  auto ended = command.wait();
  ASSERT_EQ(ended.exit_code, 0) << ended.error << ended.output;
  EXPECT_EQ(rows_of(ended.output).size(), GetParam().rows);
  EXPECT_THAT(ended.output, HasSubstr("# Out of bounds values : 0 OK"));
  EXPECT_THAT(command.files(), testing::IsEmpty());
  auto document = Json::parse(read(file));
  EXPECT_EQ(document["rows"].size(), GetParam().rows);
  EXPECT_EQ(document["wrong"].as_int(), 0);
  for (const auto& row : document["rows"]) {
    const auto& measured = row["out_of_place"];
    EXPECT_EQ(measured["wrong"].as_int(), 0);
    EXPECT_GT(measured["time_us"].as_double(), 0);
    EXPECT_LE(measured["min_us"].as_double(), measured["p50_us"].as_double());
    EXPECT_LE(measured["p50_us"].as_double(), measured["p99_us"].as_double());
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, BenchForms,
    testing::Values(
        Form{"all_reduce",
             {"--np", "3", "-b", "0", "-e", "4K", "-f", "16", "-d", "all", "-o", "all"},
             10 * 5 * 4},
        Form{"reduce_scatter",
             {"--np", "2", "-b", "0", "-e", "4K", "-f", "16", "-d", "half", "-o", "all"},
             5 * 4},
        Form{"all_gather", {"--np", "3", "-b", "100", "-e", "70K", "-f", "9", "-d", "all"}, 10 * 3},
        Form{"broadcast", {"--np", "3", "-r", "2", "-b", "0", "-e", "64K", "-f", "16"}, 5},
        Form{"reduce", {"--np", "3", "-r", "2", "-b", "0", "-e", "64K", "-f", "16", "-o", "all"}, 5 * 5},
        Form{"gather", {"--np", "3", "-r", "1", "-b", "0", "-e", "64K", "-f", "16", "-d", "all"}, 10 * 5},
        Form{"scatter", {"--np", "3", "-r", "2", "-b", "0", "-e", "64K", "-f", "16", "-d", "half"}, 5},
        Form{"all_gather_v", {"--np", "3", "-b", "0", "-e", "64K", "-f", "16", "-d", "all"}, 10 * 5},
        Form{"reduce_scatter_v", {"--np", "3", "-b", "0", "-e", "64K", "-f", "16", "-o", "all"}, 5 * 5},
        Form{"all_to_all_v", {"--np", "3", "-b", "0", "-e", "64K", "-f", "16", "-d", "all"}, 10 * 5},
        Form{"alltoall", {"--np", "3", "-b", "0", "-e", "64K", "-f", "16", "-d", "int8"}, 5},
        Form{"sendrecv", {"--np", "3", "-b", "0", "-e", "64K", "-f", "16"}, 5},
        Form{"barrier", {"--np", "4"}, 1},
        Form{"all_reduce", {"--np", "3", "--threads", "-b", "0", "-e", "64K", "-f", "16"}, 5},
        Form{"all_reduce", {"--np", "2", "--stream", "-b", "0", "-e", "64K", "-f", "16"}, 5},
        Form{"all_reduce", {"--np", "2", "-G", "2", "-b", "0", "-e", "64K", "-f", "16"}, 5},
        Form{"all_reduce", {"--np", "2", "-R", "1", "--bind", "core", "-b", "0", "-e", "64K", "-f", "16"}, 5},
        Form{"all_reduce",
             {"--np", "2", "--buffers", "library", "--offset", "4", "-b", "0", "-e", "64K", "-f", "16"},
             5},
        Form{"all_reduce", {"--np", "1", "-b", "1K", "-e", "3K", "-i", "1K"}, 3}));

TEST(Bench, RunsUnderRunToo) {
  auto ended = run_command({"run", "-n", "2", "--no-prefix", "--", TUGLINE_COMMAND, "bench", "all_reduce",
                            "-b", "1K", "-e", "1K", "-n", "2"});
  EXPECT_EQ(ended.exit_code, 0) << ended.error;
  EXPECT_EQ(rows_of(ended.output).size(), 1U);
}

TEST(Bench, InsideAJobItDoesNotStartRanksOfItsOwn) {
  for (std::vector<std::string> own :
       {std::vector<std::string>{"--np", "2"}, {"--threads"}, {"--bind", "core"}}) {
    std::vector<std::string> arguments{"run", "-n", "2", "--", TUGLINE_COMMAND, "bench", "barrier"};
    arguments.insert(arguments.end(), own.begin(), own.end());
    auto ended = run_command(arguments);
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_EQ(ended.output, "");
    EXPECT_THAT(ended.error, HasSubstr(own.front()));
    EXPECT_THAT(ended.error, HasSubstr("rank 0 of 2 from tugline"));
    EXPECT_THAT(ended.error, HasSubstr("ended with exit code 2"));
  }
  // A job of one, such as an interactive step of Slurm, is a place to start them from.
  for (const char* kind : {"--np", "--threads"}) {
    std::vector<std::string> arguments{"run", "--", TUGLINE_COMMAND, "bench", "barrier",
                                       "-n",  "1",  "--np",          "2"};
    if (kind == std::string("--threads")) arguments.emplace_back(kind);
    auto ended = run_command(arguments);
    EXPECT_EQ(ended.exit_code, 0) << ended.error;
    EXPECT_THAT(ended.output, HasSubstr("2 ranks"));
  }
}

TEST(Bench, AFileThatCannotBeWrittenIsRefusedBeforeTheRun) {
  TemporaryDirectory directory;
  auto folder = directory.path().string();
  for (const std::string& path : {folder, folder + "/not/there.json"}) {
    for (const char* kind : {"--np", "--threads"}) {
      std::vector<std::string> arguments{"bench", "barrier", "-n", "1", "--json", path, "--np", "2"};
      if (kind == std::string("--threads")) arguments.emplace_back(kind);
      auto ended = run_command(arguments);
      EXPECT_EQ(ended.exit_code, 1);
      EXPECT_EQ(ended.output, "");
      EXPECT_EQ(std::count(ended.error.begin(), ended.error.end(), '\n'), 3) << ended.error;
      EXPECT_THAT(ended.error, HasSubstr("cannot write \"" + path + "\""));
    }
  }
  auto full = run_command({"bench", "barrier", "-n", "1", "--threads", "--json", "/dev/full"});
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_THAT(full.error, HasSubstr("cannot write \"/dev/full\": No space left on device"));
}

TEST(Bench, APipeIsWrittenWhereSomebodyReadsIt) {
  TemporaryDirectory directory;
  const auto pipe = (directory.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::vector<std::string> words{"bench", "barrier", "-n", "1", "--threads", "--json", pipe};
  auto nobody = run_command(words);
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_THAT(nobody.error, HasSubstr("cannot write \"" + pipe + "\": nobody reads this pipe"));
  const base::UniqueFd reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader);
  auto ended = run_command(words);
  EXPECT_EQ(ended.exit_code, 0) << ended.error;
  std::string text(64 << 10, '\0');
  const auto got = ::read(reader.get(), text.data(), text.size());
  ASSERT_GT(got, 0);
  EXPECT_EQ(Json::parse(text.substr(0, static_cast<std::size_t>(got)))["collective"].as_string(), "barrier");
}

TEST(Bench, AnEndedRunLeavesTheFileAsItWas) {
  TemporaryDirectory directory;
  auto file = directory.path() / "result.json";
  std::ofstream(file) << "before";
  Command command(
      {"bench", "all_reduce", "-b", "4", "-e", "1M", "-i", "16", "-n", "1", "--json", file.string()});
  ASSERT_TRUE(command.wait_for("#wrong"));
  command.signal(SIGTERM);
  EXPECT_EQ(command.wait().exit_code, 1);
  EXPECT_EQ(read(file), "before");
  std::filesystem::create_symlink(file, directory.path() / "link.json");
  auto ended =
      run_command({"bench", "barrier", "-n", "1", "--json", (directory.path() / "link.json").string()});
  EXPECT_EQ(ended.exit_code, 0) << ended.error;
  EXPECT_EQ(Json::parse(read(file))["collective"].as_string(), "barrier");
  std::size_t entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    (void)entry;
    ++entries;
  }
  EXPECT_EQ(entries, 2U);
}

TEST(Bench, SaysWhatItRoundsAndWhatItIgnores) {
  auto ended = run_command(
      {"bench", "all_reduce", "--threads", "-n", "1", "-b", "3", "-e", "3", "-w", "1", "-w", "0"});
  EXPECT_EQ(ended.exit_code, 0) << ended.error;
  EXPECT_THAT(ended.output, HasSubstr("# note: sizes are rounded down to whole counts of float: 3 -> 0\n"));
  EXPECT_EQ(ended.error, "tugline: -w,--warmup_iters was given 2 times: 0 counts, the last one\n");
}

TEST(Bench, BoundRanksReportTheCoresOfTheWholeJob) {
  auto cores = [](const std::string& binding) {
    auto ended = run_command({"bench", "barrier", "--np", "2", "-n", "2", "--bind", binding});
    EXPECT_EQ(ended.exit_code, 0) << ended.error;
    EXPECT_THAT(ended.output, testing::Not(HasSubstr("--as-rank")));
    auto end = ended.output.find(" cores");
    return ended.output.substr(0, end);
  };
  EXPECT_EQ(cores("none"), cores("core"));
  EXPECT_EQ(cores("none"), cores("numa"));
}

TEST(Bench, LaterOptionsWin) {
  auto ended = run_command(
      {"bench", "all_reduce", "--np", "4", "-b", "8", "-e", "16M", "-e", "8", "--np", "2", "-n", "1"});
  EXPECT_EQ(ended.exit_code, 0) << ended.error;
  EXPECT_THAT(ended.output, HasSubstr("2 ranks"));
  EXPECT_EQ(rows_of(ended.output).size(), 1U);
}

TEST(Bench, AKilledRankEndsIt) {
  Command command({"bench", "all_reduce", "--np", "3", "-b", "1K", "-e", "1K", "-n", "1000000"});
  ASSERT_TRUE(command.wait_for("#wrong"));
  pid_t victim = 0;
  for (pid_t pid : command.marked()) {
    // The last rank: neither the command itself nor the broker.
    auto arguments = read("/proc/" + std::to_string(pid) + "/cmdline");
    if (arguments.find("--as-rank") != std::string::npos) victim = pid;
  }
  ASSERT_GT(victim, 0);
  ASSERT_EQ(::kill(victim, SIGKILL), 0);
  auto ended = command.wait();
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.error, HasSubstr("was killed by signal 9"));
  EXPECT_TRUE(command.nothing_left());
  EXPECT_THAT(command.files(), testing::IsEmpty());
}

std::filesystem::path plan_file(const std::string& name) {
  return std::filesystem::path(TUGLINE_SOURCE_DIR) / "examples/plans" / name;
}

class HandWrittenPlans : public testing::TestWithParam<std::string> {};

TEST_P(HandWrittenPlans, RunRight) {
  for (const char* op : {"sum", "min"}) {
    auto ended =
        run_command({"bench", "all_reduce", "--plan", plan_file(GetParam()).string(), "-n", "3", "-o", op});
    EXPECT_EQ(ended.exit_code, 0) << ended.error << ended.output;
    EXPECT_EQ(rows_of(ended.output).size(), 1U);
    EXPECT_THAT(ended.output, HasSubstr("# Out of bounds values : 0 OK"));
  }
}

INSTANTIATE_TEST_SUITE_P(Files, HandWrittenPlans, testing::Values("star.json", "reversed_ring.json"),
                         [](const auto& file) { return file.param.substr(0, file.param.find('.')); });

TEST(Bench, ACorruptedPlanIsRefusedAndWrongWhenPassed) {
  TemporaryDirectory directory;
  auto path = (directory.path() / "corrupted.json").string();
  std::string text = read(plan_file("star.json"));
  // Rank 0 takes rank 1's contribution twice and rank 2's never.
  std::string right = R"("second": "scratch@2")";
  auto at = text.find(right);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, right.size(), R"("second": "scratch@1")");
  std::ofstream(path) << text;

  auto refused = run_command({"bench", "all_reduce", "--plan", path, "-n", "1"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.error, HasSubstr("plan \"star\" is wrong: "));
  EXPECT_EQ(refused.output, "");

  auto wrong = run_command({"bench", "all_reduce", "--plan", path, "--unchecked", "-n", "1"});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.output, HasSubstr("FAILED"));
}

TEST(Bench, SaysWhereAPlanDoesNotFit) {
  auto star = plan_file("star.json").string();
  auto refusal = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--plan", star});
    auto ended = run_command(arguments);
    EXPECT_EQ(ended.exit_code, 2);
    EXPECT_EQ(ended.output, "");
    EXPECT_EQ(std::count(ended.error.begin(), ended.error.end(), '\n'), 3) << ended.error;
    return ended.error;
  };
  for (const char* size : {"-b", "-e", "-f", "-i"})
    EXPECT_THAT(refusal({"bench", "all_reduce", size, "4K"}), HasSubstr("leave it out with --plan"));
  EXPECT_THAT(refusal({"bench", "all_gather"}), HasSubstr("is a plan of all_reduce"));
  EXPECT_THAT(refusal({"bench", "all_reduce", "--np", "3"}), HasSubstr("is for 4 ranks, not 3"));
  EXPECT_THAT(refusal({"bench", "all_reduce", "-d", "f64"}), HasSubstr("f64 has 8"));
  EXPECT_THAT(refusal({"bench", "all_reduce", "-o", "avg"}), HasSubstr("does not average"));
}

struct WrongPlan {
  std::string from;
  std::string to;  ///< what `from` becomes in star.json
  std::string problem;
};
class WrongPlans : public testing::TestWithParam<WrongPlan> {};

TEST_P(WrongPlans, AreRefusedAlikeByBenchAndByCheckBeforeAnythingIsPrinted) {
  TemporaryDirectory directory;
  auto path = (directory.path() / "wrong.json").string();
  std::string text = read(plan_file("star.json"));
  auto at = text.find(GetParam().from);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, GetParam().from.size(), GetParam().to);
  std::ofstream(path) << text;
  for (std::vector<std::string> arguments : {std::vector<std::string>{"plan", "--check", path},
                                             {"bench", "all_reduce", "--plan", path},
                                             {"bench", "all_reduce", "--threads", "--plan", path}}) {
    auto ended = run_command(arguments);
    EXPECT_EQ(ended.exit_code, 1) << ended.error;
    EXPECT_EQ(ended.output, "");
    EXPECT_EQ(std::count(ended.error.begin(), ended.error.end(), '\n'), 3) << ended.error;
    EXPECT_THAT(ended.error, HasSubstr(path));
    EXPECT_THAT(ended.error, HasSubstr(GetParam().problem));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files, WrongPlans,
    testing::Values(WrongPlan{R"("ranks": 4)", R"("ranks": 1000000000)", "ranks is 1000000000, must be 1 to"},
                    WrongPlan{R"("ranks": 4)", R"("ranks": 0)", "ranks is 0, must be 1 to"},
                    WrongPlan{R"("element_bytes": 4)", R"("element_bytes": 0)",
                              "element_bytes is 0, must be 1"},
                    WrongPlan{R"("scratch_bytes": 1024)", R"("scratch_bytes": 8388608)",
                              "needs 8388608 bytes of scratch per rank, an operation has"},
                    WrongPlan{R"("ranks": 4)", R"("ranks": "4")", "ranks = \"4\" is not an integer"},
                    WrongPlan{"{", "[", "plan"}));

TEST(Bench, ADocumentThatIsNoObjectAndAWidthThatNoTypeHasAreNamed) {
  TemporaryDirectory directory;
  auto path = (directory.path() / "list.json").string();
  std::ofstream(path) << "[]";
  EXPECT_THAT(run_command({"plan", "--check", path}).error,
              HasSubstr(path + ": plan: the document = [] is not an object"));
  std::string text = read(plan_file("star.json"));
  auto at = text.find(R"("element_bytes": 4)");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 18, R"("element_bytes": 16)");
  std::ofstream(path) << text;
  EXPECT_THAT(run_command({"bench", "all_reduce", "--plan", path}).error, HasSubstr("no type is so wide"));
}

TEST(Bench, AMissingPlanAndARootBeyondTheRanksAreWrongUsage) {
  for (std::vector<std::string> arguments : {std::vector<std::string>{"bench", "broadcast", "-r", "2"},
                                             {"bench", "broadcast", "-r", "2", "--threads"},
                                             {"bench", "all_reduce", "--plan", "/no/such/plan.json"},
                                             {"bench", "all_reduce", "--device", "cuda"}}) {
    auto ended = run_command(arguments);
    EXPECT_EQ(ended.exit_code, 2) << ended.error;
    EXPECT_EQ(ended.output, "");
    EXPECT_EQ(std::count(ended.error.begin(), ended.error.end(), '\n'), 3) << ended.error;
  }
}

}  // namespace
}  // namespace tugline::cli

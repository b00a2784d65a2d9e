// SPDX-License-Identifier: Apache-2.0
#include "base/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "base/unique_fd.h"
#include "tugline/error.h"

namespace {

using testing::HasSubstr;
using testing::StartsWith;
using tugline::Error;
using tugline::base::detect_identity;
using tugline::base::Environment;
using tugline::base::Identity;
using tugline::base::IdentityRequest;
using tugline::base::Launcher;
using tugline::base::LaunchFacts;

const LaunchFacts kFacts{"100:5", "200:9"};

Environment torchrun(const std::string& rank) {
  return {{"RANK", rank},
          {"WORLD_SIZE", "4"},
          {"LOCAL_RANK", rank},
          {"LOCAL_WORLD_SIZE", "4"},
          {"MASTER_ADDR", "localhost"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RUN_ID", "none"},
          {"TORCHELASTIC_RESTART_COUNT", "2"}};
}

std::string message_of(const Environment& environment, const IdentityRequest& request = {}) {
  try {
    (void)detect_identity(environment, kFacts, request);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), tugline::ErrorCode::invalid_argument);
    return error.what();
  }
  return "no error";
}

void expect_identity(const Identity& identity, Launcher launcher, int rank, int size, int local_rank) {
  EXPECT_EQ(identity.launcher, launcher) << identity.description;
  EXPECT_EQ(identity.rank, rank) << identity.description;
  EXPECT_EQ(identity.size, size) << identity.description;
  EXPECT_EQ(identity.local_rank, local_rank) << identity.description;
}

TEST(Launcher, AloneIsAPrivateJob) {
  const auto identity = detect_identity({{"HOME", "/root"}}, kFacts);
  expect_identity(identity, Launcher::alone, 0, 1, 0);
  EXPECT_THAT(identity.job, StartsWith("alone-"));
  EXPECT_NE(identity.job, detect_identity({}, {"100:5", "201:9"}).job);
  EXPECT_EQ(detect_identity({{"TUGLINE_JOB", "serve"}}, kFacts).job, "serve");
}

TEST(Launcher, Tugline) {
  Environment environment{{"TUGLINE_RANK", "1"}, {"TUGLINE_SIZE", "2"}, {"TUGLINE_JOB", "j.1"}};
  expect_identity(detect_identity(environment, kFacts), Launcher::tugline, 1, 2, 1);
  environment["TUGLINE_LOCAL_RANK"] = "0";
  environment["RANK"] = "3";
  environment["WORLD_SIZE"] = "9";
  const auto identity = detect_identity(environment, kFacts);
  expect_identity(identity, Launcher::tugline, 1, 2, 0);
  EXPECT_EQ(identity.job, "j.1");
  EXPECT_THAT(identity.description,
              HasSubstr("rank 1 of 2 from tugline (TUGLINE_RANK, TUGLINE_SIZE), job j.1"));
}

TEST(Launcher, Torchrun) {
  const auto identity = detect_identity(torchrun("3"), kFacts);
  expect_identity(identity, Launcher::torchrun, 3, 4, 3);
  EXPECT_EQ(identity.restarts, 2);
  EXPECT_EQ(identity.job, detect_identity(torchrun("0"), {"100:5", "other"}).job);
  // Same variables, another agent: another launch.
  EXPECT_NE(identity.job, detect_identity(torchrun("3"), {"101:8", "200:9"}).job);
  auto other_port = torchrun("3");
  other_port["MASTER_PORT"] = "29501";
  EXPECT_NE(identity.job, detect_identity(other_port, kFacts).job);
  // Agents of several hosts must agree on the name.
  auto two_hosts = torchrun("3");
  two_hosts["LOCAL_WORLD_SIZE"] = "2";
  EXPECT_EQ(detect_identity(two_hosts, kFacts).job, detect_identity(two_hosts, {"9:9", "1:1"}).job);
}

TEST(Launcher, RankWithoutWorldSizeIsNotTorchrun) {
  EXPECT_EQ(detect_identity({{"RANK", "private"}}, kFacts).launcher, Launcher::alone);
}

TEST(Launcher, OpenMpiIsFoundThroughPmixAndWithoutIt) {
  Environment environment{{"OMPI_COMM_WORLD_RANK", "2"},
                          {"OMPI_COMM_WORLD_SIZE", "3"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                          {"OMPI_MCA_ess_base_jobid", "77"}};
  auto identity = detect_identity(environment, kFacts);
  expect_identity(identity, Launcher::open_mpi, 2, 3, 1);
  environment["OMPI_MCA_ess_base_jobid"] = "78";
  EXPECT_NE(identity.job, detect_identity(environment, kFacts).job);
  environment["PMIX_RANK"] = "2";
  environment["PMIX_NAMESPACE"] = "prterun-host-4711@1";
  identity = detect_identity(environment, kFacts);
  expect_identity(identity, Launcher::pmix, 2, 3, 1);
  environment["PMIX_NAMESPACE"] = "prterun-host-4712@1";
  EXPECT_NE(identity.job, detect_identity(environment, kFacts).job);
}

TEST(Launcher, PmixUnderSlurm) {
  const Environment environment{{"PMIX_RANK", "1"},    {"PMIX_NAMESPACE", "slurm.pmix.12.0"},
                                {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "1"},
                                {"SLURM_PROCID", "1"}, {"SLURM_STEP_ID", "0"}};
  expect_identity(detect_identity(environment, kFacts), Launcher::pmix, 1, 2, 1);
}

TEST(Launcher, PmiTakesTheLauncherProcessWhereNothingElseNamesTheJob) {
  Environment environment{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}};
  const auto identity = detect_identity(environment, kFacts);
  expect_identity(identity, Launcher::pmi, 1, 2, 1);
  EXPECT_EQ(identity.job, detect_identity(environment, {"100:5", "x"}).job);
  EXPECT_NE(identity.job, detect_identity(environment, {"101:5", "x"}).job);
  environment["PMI_JOBID"] = "a";
  EXPECT_EQ(detect_identity(environment, kFacts).job, detect_identity(environment, {"7:7", "x"}).job);
}

TEST(Launcher, SlurmStepsHaveRanksBatchScriptsHaveNone) {
  Environment environment{
      {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_ID", "12"}};
  EXPECT_EQ(detect_identity(environment, kFacts).launcher, Launcher::alone);
  environment["SLURM_STEP_ID"] = "0";
  environment["SLURM_STEP_NUM_TASKS"] = "4";
  const auto identity = detect_identity(environment, kFacts);
  expect_identity(identity, Launcher::slurm, 0, 4, 0);
  environment["SLURM_STEP_ID"] = "1";
  EXPECT_NE(identity.job, detect_identity(environment, kFacts).job);
}

TEST(Launcher, TheCallWins) {
  const auto identity = detect_identity(torchrun("3"), kFacts, {.rank = 0, .size = 2, .job = "mine"});
  expect_identity(identity, Launcher::call, 0, 2, 0);
  EXPECT_EQ(identity.job, "mine");
  EXPECT_EQ(detect_identity(torchrun("3"), kFacts, {.job = "mine"}).rank, 3);
}

TEST(Launcher, ErrorsNameTheVariableAndTheValue) {
  EXPECT_THAT(message_of({{"TUGLINE_RANK", "1"}}), HasSubstr("TUGLINE_RANK is set, but TUGLINE_SIZE is not"));
  EXPECT_THAT(message_of({{"TUGLINE_RANK", "1"}, {"TUGLINE_SIZE", "2"}}),
              HasSubstr("TUGLINE_JOB is not set"));
  EXPECT_THAT(message_of({{"RANK", "x"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK is \"x\""));
  EXPECT_THAT(message_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), HasSubstr("rank 2 of 2 ranks"));
  EXPECT_THAT(message_of({{"RANK", "0"}, {"WORLD_SIZE", "0"}}), HasSubstr("WORLD_SIZE is \"0\""));
  EXPECT_THAT(message_of({{"TUGLINE_JOB", "a/b"}}), HasSubstr("TUGLINE_JOB is \"a/b\""));
  EXPECT_THAT(message_of({{"TUGLINE_JOB", ".."}}), HasSubstr("not a dot first"));
  EXPECT_THAT(message_of({}, {.rank = 1}), HasSubstr("the rank but not the size"));
  EXPECT_THAT(message_of({}, {.rank = 0, .size = 2}), HasSubstr("no job name"));
  EXPECT_THAT(message_of({}, {.rank = 0, .size = 1, .job = ""}), HasSubstr("the call's job is \"\""));
}

TEST(Launcher, ALaunchOfWhichHalfIsMissingIsNotAlone) {
  EXPECT_THAT(
      message_of({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}}),
      testing::AllOf(HasSubstr("SLURM_STEP_ID is \"0\", as from Slurm, but SLURM_STEP_NUM_TASKS is not set"),
                     HasSubstr("to run alone, unset SLURM_STEP_ID")));
  EXPECT_THAT(message_of({{"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "2"}}),
              HasSubstr("SLURM_PROCID is not set"));
  EXPECT_THAT(message_of({{"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "one"}}),
              HasSubstr("SLURM_PROCID is \"one\""));
  EXPECT_THAT(message_of({{"SLURM_PROCID", "one"}}), HasSubstr("SLURM_PROCID is \"one\""));
  EXPECT_THAT(message_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "many"}}),
              HasSubstr("SLURM_NTASKS is \"many\""));
  EXPECT_THAT(message_of({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}}),
              HasSubstr("SLURM_STEP_ID is not set"));
  EXPECT_THAT(message_of({{"PMI_RANK", "1"}}), HasSubstr("PMI_SIZE is not set"));
  EXPECT_THAT(message_of({{"OMPI_COMM_WORLD_SIZE", "2"}}), HasSubstr("OMPI_COMM_WORLD_RANK is not set"));
  EXPECT_THAT(message_of({{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "n"}}),
              HasSubstr("OMPI_COMM_WORLD_SIZE is not set"));
  EXPECT_THAT(message_of({{"TORCHELASTIC_RUN_ID", "none"}, {"RANK", "1"}}),
              HasSubstr("WORLD_SIZE is not set"));
  // Another launcher that says everything is believed.
  EXPECT_EQ(
      detect_identity(
          {{"PMI_RANK", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}}, kFacts)
          .launcher,
      Launcher::slurm);
  EXPECT_EQ(detect_identity({{"PMI_RANK", "1"}}, kFacts, {.rank = 0, .size = 1}).launcher, Launcher::call);
}

TEST(Launcher, RanksEndBelowTheMostRanksThatAreCounted) {
  auto rank = [](const char* text) {
    return message_of({{"TUGLINE_RANK", text}, {"TUGLINE_SIZE", "256"}, {"TUGLINE_JOB", "j"}});
  };
  EXPECT_EQ(rank("255"), "no error");
  EXPECT_THAT(rank("256"), HasSubstr("an integer from 0 to 255"));
  EXPECT_THAT(message_of({{"TUGLINE_RANK", "0"}, {"TUGLINE_SIZE", "257"}}), HasSubstr("from 1 to 256"));
}

TEST(LaunchFacts, WrappersBetweenLauncherAndRankDoNotMatter) {
  // This process plays the launcher. A child with the launch's variables plays a wrapper, its child the rank.
  const auto facts_below = [](int wrappers, const char* rank) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    const std::string program = "/proc/self/exe";
    const pid_t child = fork();
    if (child == 0) {
      dup2(ends[1], STDOUT_FILENO);
      const std::string rank_variable = std::string("RANK=") + rank;
      const std::string depth = std::to_string(wrappers);
      const char* arguments[] = {"base_test", "--print-launch-facts", depth.c_str(), nullptr};
      const char* variables[] = {rank_variable.c_str(), "WORLD_SIZE=2", "MASTER_PORT=1", nullptr};
      execve(program.c_str(), const_cast<char**>(arguments), const_cast<char**>(variables));
      _exit(127);
    }
    const tugline::base::UniqueFd read_end(ends[0]);
    close(ends[1]);
    std::string text;
    std::array<char, 256> buffer{};
    for (ssize_t got; (got = read(read_end.get(), buffer.data(), buffer.size())) > 0;)
      text.append(buffer.data(), static_cast<std::size_t>(got));
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    return text;
  };
  const auto direct = facts_below(0, "0");
  EXPECT_THAT(direct, StartsWith(std::to_string(getpid()) + ":"));
  EXPECT_EQ(direct, facts_below(2, "1"));
}

}  // namespace

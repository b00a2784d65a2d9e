// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "core/plan/builders.h"
#include "core/plan/checker.h"
#include "core/plan/print.h"
#include "plan_cases.h"
#include "plan_interpreter.h"
#include "tugline/error.h"

namespace tugline::core::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

bool same(const Plan& a, const Plan& b) {
  return a.name == b.name && a.collective == b.collective && a.ranks == b.ranks && a.root == b.root &&
         a.element_bytes == b.element_bytes && a.bytes == b.bytes && a.scratch_bytes == b.scratch_bytes &&
         a.in_place == b.in_place && a.average == b.average && a.order == b.order && a.groups == b.groups &&
         a.programs == b.programs;
}

std::string read_example(const std::string& name) {
  std::ifstream file(std::string(TUGLINE_SOURCE_DIR) + "/examples/plans/" + name);
  EXPECT_TRUE(file.good()) << name;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(PlanJson, ComesBackAsItWas) {
  for_each_case({1, 2, 5}, {0, 7, 1100}, [&](auto name, const PlanRequest& request) {
    const Plan plan = build(name, request);
    EXPECT_TRUE(same(plan_from_json(to_json(plan)), plan)) << describe(name, request);
  });
}

TEST(PlanJson, ExamplesAreProvenAndRight) {
  for (const char* name : {"star.json", "reversed_ring.json"}) {
    const Plan plan = plan_from_json(read_example(name));
    EXPECT_EQ(check(plan).problem, "") << name;
    EXPECT_TRUE(same(plan_from_json(to_json(plan)), plan)) << name;
  }
  const Plan star = plan_from_json(read_example("star.json"));
  for (std::uint64_t seed : {1, 2, 3, 4}) {
    const RunResult run = interpret(star, seed);
    for (std::int32_t rank = 0; rank < star.ranks; ++rank) {
      EXPECT_EQ(run.outputs[static_cast<std::size_t>(rank)], expected_output(star, rank));
    }
  }
}

/// A signal that a later one of the same flag follows: without it the waiter goes on later, that is all.
bool is_superseded(const Program& program, std::size_t index) {
  if (program[index].kind != StepKind::signal) return false;
  return std::any_of(program.begin() + static_cast<std::ptrdiff_t>(index) + 1, program.end(),
                     [&](const Step& later) {
                       return later.kind == StepKind::signal && later.peer == program[index].peer &&
                              later.flag == program[index].flag;
                     });
}

TEST(PlanJson, NoStepOfAnExampleCanBeLeftOut) {
  for (const char* name : {"star.json", "reversed_ring.json"}) {
    const Plan good = plan_from_json(read_example(name));
    for (std::size_t rank = 0; rank < good.programs.size(); ++rank) {
      for (std::size_t step = 0; step < good.programs[rank][0].size(); ++step) {
        Plan plan = good;
        Program& program = plan.programs[rank][0];
        if (is_superseded(program, step)) continue;
        program.erase(program.begin() + static_cast<std::ptrdiff_t>(step));
        EXPECT_FALSE(check(plan).ok) << name << " without rank " << rank << " step " << step;
      }
    }
  }
}

std::string error_of(const std::string& text) {
  try {
    plan_from_json(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "accepted";
}

std::string with_step(const std::string& step) {
  return R"({"name": "x", "collective": "broadcast", "ranks": 1, "element_bytes": 1, "bytes": 8, "order": "none",
             "programs": [[[)" +
         step + "]]]}";
}

TEST(PlanJson, ErrorsNameFieldStepAndValue) {
  EXPECT_EQ(
      error_of(with_step(R"({"kind": "copy", "destination": "output", "source": "input", "bytes": 8})")),
      "accepted");
  EXPECT_THAT(error_of(with_step(R"({"kind": "cpy"})")),
              AllOf(HasSubstr("programs[0][0][0].kind = \"cpy\" does not exist"), HasSubstr("copy, reduce")));
  EXPECT_THAT(
      error_of(with_step(R"({"kind": "copy", "destination": "outpt+1", "source": "input", "bytes": 8})")),
      HasSubstr("programs[0][0][0].destination = \"outpt+1\" has no valid space"));
  EXPECT_THAT(
      error_of(with_step(R"({"kind": "copy", "destination": "scratch@x", "source": "input", "bytes": 8})")),
      HasSubstr("destination = \"scratch@x\" has no valid rank"));
  EXPECT_THAT(
      error_of(with_step(R"({"kind": "copy", "destination": "output+-1", "source": "input", "bytes": 8})")),
      HasSubstr("destination = \"output+-1\" has no valid offset"));
  EXPECT_THAT(
      error_of(with_step(R"({"kind": "copy", "destination": "output", "source": "input", "bytes": -8})")),
      HasSubstr("programs[0][0][0].bytes = -8 is not an integer from 0 to"));
  EXPECT_THAT(error_of(with_step(R"({"kind": "copy", "destination": "output", "source": "input"})")),
              HasSubstr("programs[0][0][0].bytes is missing"));
  EXPECT_THAT(error_of(with_step(R"({"kind": "wait", "peer": 0, "value": 1, "flag": 256})")),
              HasSubstr("programs[0][0][0].flag = 256 is not an integer from 0 to 255"));
  EXPECT_THAT(error_of(with_step(R"({"kind": "wait", "peer": 0, "value": 1, "bytes": 3})")),
              HasSubstr("programs[0][0][0].bytes = 3 is no field of wait"));
  EXPECT_THAT(error_of(with_step(R"({"kind": "wait", "peer": "all", "value": 1})")),
              HasSubstr("programs[0][0][0].peer = \"all\""));
  EXPECT_THAT(error_of(with_step(R"({"kind": "wait", "per": 0, "value": 1})")),
              HasSubstr("programs[0][0][0].per = 0 is not a field here"));
  EXPECT_THAT(error_of(with_step("17")), HasSubstr("programs[0][0][0] = 17 is not an object"));
  EXPECT_THAT(error_of(R"({"name": "x"})"), HasSubstr("collective is missing"));
  EXPECT_THAT(error_of(R"({"name": 3})"), HasSubstr("name = 3 is not a string"));
  EXPECT_THAT(error_of("[]"), HasSubstr("is not an object"));
  EXPECT_NE(error_of("{"), "accepted");
  EXPECT_THAT(error_of(R"({"name": "x", "collective": "broadcast", "ranks": 1, "element_bytes": 1, "bytes": 8,
                           "order": "none", "programs": [[{}]]})"),
              HasSubstr("programs[0][0] = {} is not a list"));
}

TEST(PlanJson, BlocksAreReadWhereTheyBelong) {
  const auto with = [](const char* collective, const char* blocks) {
    return error_of(
        std::string(R"({"name": "x", "collective": ")") + collective +
        R"(", "ranks": 2, "element_bytes": 1, "bytes": 8, "order": "none", "programs": [[], []])" + blocks +
        "}");
  };
  EXPECT_EQ(with("all_gather_v", R"(, "blocks": [3, 5])"), "accepted");
  EXPECT_THAT(with("all_gather_v", ""), HasSubstr("blocks is missing"));
  EXPECT_THAT(with("all_gather_v", R"(, "blocks": 8)"), HasSubstr("blocks = 8 is not a list"));
  EXPECT_THAT(with("all_gather_v", R"(, "blocks": [3, -5])"), HasSubstr("blocks[1] = -5"));
  EXPECT_THAT(with("all_to_all_v", R"(, "blocks": [3, 5])"), HasSubstr("has 2 sizes for 2 ranks"));
  EXPECT_THAT(with("all_gather", R"(, "blocks": [3, 5])"), HasSubstr("is no field of all_gather"));
}

TEST(PlanPrint, OneLineAStep) {
  const Plan star = plan_from_json(read_example("star.json"));
  const std::string text = print(star);
  EXPECT_THAT(text, HasSubstr("star all_reduce: 4 ranks, 1024 bytes"));
  EXPECT_THAT(text, HasSubstr("rank 0: 8 steps\n     0 wait flag 0 of rank 1 for 1\n"));
  EXPECT_THAT(text, HasSubstr("reduce output[0, 1024) <- input[0, 1024) op scratch@1[0, 1024)"));
  EXPECT_THAT(text, HasSubstr("signal flag 0 at everyone to 1"));
}

}  // namespace
}  // namespace tugline::core::test

// SPDX-License-Identifier: Apache-2.0
#include "tugline/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <sstream>
#include <vector>

namespace {

using testing::HasSubstr;
using testing::StartsWith;
using tugline::Error;
using tugline::ErrorCode;
using tugline::Remedy;

std::vector<std::string> lines_of(const Error& error) {
  std::istringstream text(error.what());
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

TEST(Error, HasThreeLinesWhatWhereAndRemedy) {
  const Error error(ErrorCode::peer_lost, "rank 2 died while 8 bytes were awaited", "call agree()",
                    {.operation = "all_reduce #17",
                     .communicator = "world (epoch 0)",
                     .rank = 0,
                     .peer = 2,
                     .device = "host:0"});
  const auto lines = lines_of(error);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], "tugline: peer_lost: rank 2 died while 8 bytes were awaited");
  EXPECT_THAT(lines[1],
              StartsWith("  where: all_reduce #17, communicator world (epoch 0), rank 0, peer 2, device "
                         "host:0, tests/base/error_test.cpp:"));
  EXPECT_EQ(lines[2], "  do: shrink: call agree()");
}

TEST(Error, LeavesOutWhatIsNotKnownAndExplainsErrno) {
  const Error error(ErrorCode::system, Remedy::restart, "no", "yes", {.native_code = EMFILE});
  const auto lines = lines_of(error);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_THAT(lines[1], HasSubstr("  where: errno 24 (Too many open files), tests/base/error_test.cpp:"));
  EXPECT_EQ(lines[2], "  do: restart: yes");
}

TEST(Error, LocationIsThePlaceOfTheCall) {
  const Error error(ErrorCode::internal, "a", "b");
  EXPECT_EQ(error.location().line(), static_cast<unsigned>(__LINE__) - 1);
  EXPECT_THAT(error.location().file_name(), testing::EndsWith("error_test.cpp"));
  EXPECT_THAT(error.location().function_name(), HasSubstr("TestBody"));
}

TEST(Error, EveryCodeAndRemedyHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::internal); ++code) {
    EXPECT_TRUE(names.insert(name_of(static_cast<ErrorCode>(code))).second) << code;
    EXPECT_NE(name_of(tugline::default_remedy(static_cast<ErrorCode>(code))), "?") << code;
  }
  for (int remedy = 0; remedy <= static_cast<int>(Remedy::report_bug); ++remedy)
    EXPECT_TRUE(names.insert(name_of(static_cast<Remedy>(remedy))).second) << remedy;
  EXPECT_EQ(names.count("?"), 0U);
  EXPECT_EQ(name_of(static_cast<ErrorCode>(200)), "?");
}

}  // namespace

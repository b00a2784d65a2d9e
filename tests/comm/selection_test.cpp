// SPDX-License-Identifier: Apache-2.0
// Which plan serves a request, and what is advised where none does: every advice is tried.
#include "comm/selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <charconv>

#include "comm/layout.h"
#include "tugline/error.h"

namespace tugline::comm {
namespace {

using testing::HasSubstr;

core::PlanRequest request_of(core::Collective collective, int ranks, std::uint64_t bytes,
                             std::uint64_t scratch) {
  return {.collective = collective, .ranks = ranks, .bytes = bytes, .scratch_bytes = scratch / kHalves};
}

Error refusal(const core::PlanRequest& request, std::string_view forced = {}) {
  try {
    choose_builder(request, forced);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "chosen";
  return Error(ErrorCode::internal, "none", "none");
}

TEST(Selection, TheForcedBuilderWinsWhereItCanAndIsNamedWhereNot) {
  auto request = request_of(core::Collective::all_reduce, 4, 1 << 20, 2 << 20);
  EXPECT_EQ(choose_builder(request).builder, "two_shot");
  EXPECT_EQ(choose_builder(request, "ring").builder, "ring");
  request.collective = core::Collective::all_to_all;
  auto choice = choose_builder(request, "ring");
  EXPECT_EQ(choice.builder, "one_shot");
  EXPECT_THAT(choice.reason, HasSubstr("ring, which the setting plan names, cannot serve it"));
}

TEST(Selection, TwoRanksTradeTheirScratchAtEverySize) {
  for (std::uint64_t bytes : {64u, 64u << 10, 64u << 20}) {
    const auto request = request_of(core::Collective::all_reduce, 2, bytes, 2 << 20);
    EXPECT_EQ(choose_builder(request).builder, "one_shot") << bytes;
  }
}

TEST(Selection, ARequestWithoutSenseIsNoWantOfScratch) {
  for (const char* forced : {"", "ring"}) {
    auto error = refusal(request_of(core::Collective::barrier, 2, 1 << 20, 2 << 20), forced);
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("a barrier has none"));
  }
}

TEST(Selection, AdvisesTheScratchThatSuffices) {
  auto request = request_of(core::Collective::all_reduce, 2, std::uint64_t{1} << 40, 2 << 20);
  std::string advice = refusal(request).what_to_do();
  const std::string before = "set TUGLINE_SCRATCH_BYTES to ";
  ASSERT_THAT(advice, HasSubstr(before));
  std::uint64_t bytes = 0;
  std::from_chars(advice.data() + before.size(), advice.data() + advice.size(), bytes);
  request.scratch_bytes = rank_scratch_bytes(2, bytes) / kHalves;
  EXPECT_EQ(choose_builder(request).builder, "one_shot");
}

TEST(Selection, AdvisesNoScratchThatCannotBeHad) {
  auto request = request_of(core::Collective::all_gather, 256, std::uint64_t{1} << 44, 2 << 20);
  request.scratch_bytes = rank_scratch_bytes(256, 2 << 20) / kHalves;
  EXPECT_THAT(refusal(request).what_to_do(), HasSubstr("move fewer bytes at once"));
}

TEST(Selection, MessagesDoNotUseTheSettingsScratch) {
  auto request = request_of(core::Collective::send_recv, 2, std::uint64_t{1} << 34, pair_scratch_bytes(256));
  EXPECT_THAT(refusal(request).what_to_do(), HasSubstr("send fewer bytes at once"));
  EXPECT_EQ(pair_scratch_bytes(2), 512u << 10);
  EXPECT_EQ(pair_scratch_bytes(256), 8u << 10);
}

}  // namespace
}  // namespace tugline::comm

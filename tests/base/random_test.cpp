// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

TEST(Random, HasTheLengthAndDiffers) {
  const auto first = tugline::base::random_hex(32);
  EXPECT_EQ(first.size(), 64U);
  EXPECT_EQ(first.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(first, tugline::base::random_hex(32));
  EXPECT_EQ(tugline::base::random_hex(0), "");
}

TEST(Random, EveryDigitOccurs) {
  const auto text = tugline::base::random_hex(4096);
  for (const char digit : std::string("0123456789abcdef"))
    EXPECT_NE(text.find(digit), std::string::npos) << digit;
}

}  // namespace

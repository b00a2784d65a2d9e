// SPDX-License-Identifier: Apache-2.0
// EXPECT_ERROR(statement, code, part): the statement throws tugline::Error with that code and a text that
// contains `part`.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tugline/error.h"

#define EXPECT_ERROR(statement, expected_code, part)        \
  try {                                                     \
    statement;                                              \
    ADD_FAILURE() << #statement << " throws nothing";       \
  } catch (const ::tugline::Error& error) {                 \
    EXPECT_EQ(error.code(), expected_code) << error.what(); \
    EXPECT_THAT(error.what(), ::testing::HasSubstr(part));  \
  }                                                         \
  static_assert(true, "wants a semicolon")

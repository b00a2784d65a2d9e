// SPDX-License-Identifier: Apache-2.0
// Buffers that a rank may not have mapped all at once: the operation goes through scratch, at all ranks.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "broker_ranks.h"

namespace tugline::comm::test {
namespace {

constexpr std::size_t kLimit = 100 << 10;
// Before the settings are read.
[[maybe_unused]] const int kLimited =
    ::setenv("TUGLINE_IMPORT_LIMIT_BYTES", std::to_string(kLimit).c_str(), 1);

TEST(DirectLimits, WhatDoesNotFitTheImportsGoesThroughScratchEverywhere) {
  run(3, [](Rank& self) {
    self.comm.barrier();
    std::uint64_t direct = 0;
    // The other two ranks' buffers fit, do not, do again.
    for (const std::size_t bytes : {kLimit / 2, kLimit, kLimit / 4, kLimit / 2 + 8192, kLimit / 2}) {
      const auto memory = memory::allocate(self.client, bytes);
      auto* data = reinterpret_cast<std::int32_t*>(memory->data());
      const std::size_t count = bytes / sizeof *data;
      for (int round = 0; round < 3; ++round) {
        for (std::size_t i = 0; i < count; ++i) data[i] = self.rank + static_cast<int>(i) + round;
        self.comm.all_reduce(data, data, count, DataType::i32, ReduceOp::sum);
        for (std::size_t i = 0; i < count; ++i)
          ASSERT_EQ(data[i], 3 + 3 * (static_cast<int>(i) + round)) << bytes;
      }
      if (2 * bytes <= kLimit) direct += 3;
      EXPECT_EQ(self.state->direct_operations(), direct) << bytes;
    }
  });
}

}  // namespace
}  // namespace tugline::comm::test

// SPDX-License-Identifier: Apache-2.0
#include "topology/nvml.h"

#include <gtest/gtest.h>

#include "tugline/error.h"

namespace tugline::topology {
namespace {

std::string refusal(const char* library) {
  try {
    (void)read_gpu_states(library);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
    return error.what_failed();
  }
  ADD_FAILURE() << library << " was read";
  return {};
}

TEST(Nvml, TellsWhatTheLibraryTellsAndLeavesOutWhatItDoesNot) {
  const auto states = read_gpu_states(TUGLINE_FAKE_NVML);
  ASSERT_EQ(states.size(), 2u);  // a third one does not answer
  const GpuState& hot = states[0];
  EXPECT_EQ(hot.uuid, "GPU-0001");
  EXPECT_EQ(hot.name, "Hot");
  EXPECT_EQ(hot.bus_id, "00000000:1B:00.0");
  EXPECT_EQ(hot.memory_total_bytes, 80u);
  EXPECT_EQ(hot.memory_used_bytes, 30u);
  EXPECT_EQ(hot.sm_clock_mhz, 1200u);
  EXPECT_EQ(hot.sm_clock_limit_mhz, 1980u);
  EXPECT_EQ(hot.memory_clock_mhz, 2600u);
  EXPECT_EQ(hot.power_watts, 500.25);
  EXPECT_EQ(hot.power_limit_watts, 700.0);
  EXPECT_EQ(hot.temperature_celsius, 91u);
  EXPECT_EQ(hot.slowed_by,
            (std::vector<std::string>{"clocks set by an application", "heat (hardware slow-down)"}));
  EXPECT_TRUE(hot.is_slowed_by_fault);
  ASSERT_EQ(hot.links.size(), 2u);
  EXPECT_TRUE(hot.links[0].active);
  EXPECT_EQ(hot.links[0].peer_bus_id, "00000000:1C:00.0");
  EXPECT_FALSE(hot.links[1].active);
  EXPECT_FALSE(hot.links[1].peer_bus_id.has_value());
  const GpuState& silent = states[1];
  EXPECT_EQ(silent.uuid, "GPU-0002");
  EXPECT_FALSE(silent.memory_used_bytes || silent.sm_clock_mhz || silent.power_watts ||
               silent.temperature_celsius);
  EXPECT_TRUE(silent.slowed_by.empty() && silent.links.empty());
  EXPECT_FALSE(silent.is_slowed_by_fault);
}

TEST(Nvml, SaysWhyThereIsNothingToTell) {
  EXPECT_NE(refusal("libno-such-library.so.1").find("libno-such-library.so.1 cannot be opened"),
            std::string::npos);
  EXPECT_NE(refusal(TUGLINE_BROKEN_NVML).find("Driver Not Loaded"), std::string::npos);
  EXPECT_NE(refusal("libm.so.6").find("lacks nvmlInit_v2"), std::string::npos);
}

}  // namespace
}  // namespace tugline::topology

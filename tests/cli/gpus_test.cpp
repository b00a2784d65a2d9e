// SPDX-License-Identifier: Apache-2.0
#include "doctor/gpus.h"

#include <gtest/gtest.h>

namespace tugline::cli {
namespace {

TEST(Gpus, AStateIsOneLineAndHeatIsWorthANote) {
  topology::GpuState state;
  state.sm_clock_mhz = 345;
  state.sm_clock_limit_mhz = 1980;
  state.power_watts = 77.4;
  state.slowed_by = {"idle"};
  Finding finding = state_finding("gpu 0 state", state);
  EXPECT_EQ(finding.level, Level::ok);
  EXPECT_EQ(finding.evidence, "345 of 1980 MHz, 77 W; clocks are held down by idle; no NVLink");
  state.power_watts.reset();
  state.temperature_celsius = 91;
  state.slowed_by = {"heat (hardware slow-down)"};
  state.is_slowed_by_fault = true;
  state.links = {{.active = true, .peer_bus_id = {}}, {.active = false, .peer_bus_id = {}}};
  finding = state_finding("gpu 0 state", state);
  EXPECT_EQ(finding.level, Level::note);
  EXPECT_FALSE(finding.fix.empty());
  EXPECT_EQ(finding.evidence,
            "345 of 1980 MHz, W: not told, 91 C; clocks are held down by heat (hardware slow-down); 1 of 2 "
            "NVLinks active");
}

}  // namespace
}  // namespace tugline::cli

// SPDX-License-Identifier: Apache-2.0
#include "base/cgroup.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace {

using tugline::base::cgroup_processor_limit;
using tugline::base::read_cgroup_memory;

/// A made-up root with /proc and a control group tree.
class CgroupTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "tugline-cgroup-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = root_ + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  std::string root_;
};

TEST_F(CgroupTest, Version2TakesTheTightestGroupOnTheWayUp) {
  write("/proc/self/cgroup", "0::/jobs/one\n");
  write("/proc/self/mountinfo",
        "25 1 0:22 / /proc rw - proc proc rw\n"
        "30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  write("/sys/fs/cgroup/jobs/one/memory.max", "max\n");
  write("/sys/fs/cgroup/jobs/one/memory.current", "100\n");
  write("/sys/fs/cgroup/jobs/memory.max", "1000000\n");
  write("/sys/fs/cgroup/jobs/memory.current", "600000\n");
  write("/sys/fs/cgroup/jobs/memory.stat", "anon 300000\ninactive_file 100000\nactive_file 50000\nshmem 9\n");
  const auto memory = read_cgroup_memory(root_);
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->limit_bytes, 1'000'000U);
  EXPECT_EQ(memory->free_bytes, 550'000U);
}

TEST_F(CgroupTest, Version1InAContainerThatSeesItsOwnPartOnly) {
  write("/proc/self/cgroup", "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n");
  write("/proc/self/mountinfo",
        "40 25 0:30 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
        "41 25 0:31 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "5000\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "6000\n");
  const auto memory = read_cgroup_memory(root_);
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->limit_bytes, 5000U);
  EXPECT_EQ(memory->free_bytes, 0U);
}

TEST_F(CgroupTest, ProcessorLimitOfVersion2IsTheTightestOnTheWayUp) {
  write("/proc/self/cgroup", "0::/jobs/one\n");
  write("/proc/self/mountinfo", "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  EXPECT_FALSE(cgroup_processor_limit(root_));
  write("/sys/fs/cgroup/jobs/one/cpu.max", "max 100000\n");
  EXPECT_FALSE(cgroup_processor_limit(root_));
  write("/sys/fs/cgroup/jobs/cpu.max", "250000 100000\n");
  EXPECT_EQ(cgroup_processor_limit(root_), 2.5);
  write("/sys/fs/cgroup/jobs/one/cpu.max", "75000 50000\n");
  EXPECT_EQ(cgroup_processor_limit(root_), 1.5);
}

TEST_F(CgroupTest, ProcessorLimitOfVersion1) {
  write("/proc/self/cgroup", "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n");
  write("/proc/self/mountinfo",
        "41 25 0:31 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(cgroup_processor_limit(root_));
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
  EXPECT_EQ(cgroup_processor_limit(root_), 0.5);
}

TEST_F(CgroupTest, NoLimitIsNone) {
  EXPECT_FALSE(read_cgroup_memory(root_));
  write("/proc/self/cgroup", "4:memory:/\n");
  write("/proc/self/mountinfo", "40 25 0:30 / /cg ro - cgroup cgroup rw,memory\n");
  write("/cg/memory.limit_in_bytes", "9223372036854771712\n");
  write("/cg/memory.usage_in_bytes", "6000\n");
  EXPECT_FALSE(read_cgroup_memory(root_));
}

TEST_F(CgroupTest, HostMemoryIsAvailablePlusSwap) {
  EXPECT_FALSE(tugline::base::host_memory_free(root_));
  write("/proc/meminfo", "MemTotal: 100 kB\nMemAvailable:  30 kB\nHugePages_Total: 0\nSwapFree: 12 kB\n");
  EXPECT_EQ(tugline::base::host_memory_free(root_), 42U * 1024);
  EXPECT_GT(tugline::base::host_memory_free().value_or(0), 0U);
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
#include "topology/machine.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <thread>

namespace tugline::topology {
namespace {

template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

int processors_of_affinity(cpu_set_t& set) {
  CPU_ZERO(&set);
  return ::sched_getaffinity(::getpid(), sizeof(set), &set) == 0 ? CPU_COUNT(&set) : -1;
}

/// What the kernel says of each node, in bytes; where it knows no nodes, what it says of the machine. The two
/// may differ for long where memory was added after boot.
double memory_of_nodes() {
  double kib = 0;
  std::error_code none;
  for (const auto& node : std::filesystem::directory_iterator("/sys/devices/system/node", none)) {
    std::ifstream file(node.path() / "meminfo");
    for (std::string line; std::getline(file, line);) {
      const auto at = line.find("MemTotal:");
      if (at != std::string::npos) kib += std::stod(line.substr(at + 9));
    }
  }
  if (kib > 0) return kib * 1024;
  return static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

TEST(Machine, this_machine_agrees_with_the_kernel) {
  const Topology& machine = this_machine();
  EXPECT_EQ(static_cast<long>(machine.processors.size()), ::sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t set;
  const int allowed = processors_of_affinity(set);
  ASSERT_GT(allowed, 0);
  int usable = 0;
  for (const Processor& processor : machine.processors) {
    EXPECT_EQ(processor.usable, CPU_ISSET(static_cast<std::size_t>(processor.os_index), &set) != 0);
    usable += processor.usable ? 1 : 0;
  }
  EXPECT_EQ(usable, allowed);
  std::uint64_t memory = 0;
  for (const NumaNode& node : machine.numa_nodes) memory += node.memory_bytes;
  // Memory that is added while this runs (a balloon, hot plug) shows in one of them first.
  const double physical = memory_of_nodes();
  EXPECT_GT(static_cast<double>(memory), physical / 2);
  EXPECT_LT(static_cast<double>(memory), physical * 1.5);
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), usable);
  EXPECT_FALSE(machine.hwloc_xml.empty());
  EXPECT_EQ(&this_machine(), &machine);
}

TEST(Machine, affinity_of_the_process_decides_what_is_usable) {
  cpu_set_t before;
  if (processors_of_affinity(before) < 2) GTEST_SKIP() << "this process may use one processor only";
  int first = 0;
  while (!CPU_ISSET(static_cast<std::size_t>(first), &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(first), &one);
  ASSERT_EQ(::sched_setaffinity(::getpid(), sizeof(one), &one), 0);
  const Topology pinned = read_machine();
  ASSERT_EQ(::sched_setaffinity(::getpid(), sizeof(before), &before), 0);
  EXPECT_EQ(pinned.processors.size(), this_machine().processors.size());
  EXPECT_EQ(usable_cores(pinned), 1);
  for (const Processor& processor : pinned.processors)
    EXPECT_EQ(processor.usable, processor.os_index == first);
}

TEST(Machine, synthetic_machine_has_what_it_says) {
  const Topology machine = read_synthetic("package:2 numa:1 l3:1 core:4 pu:2");
  EXPECT_EQ(machine.packages.size(), 2u);
  EXPECT_EQ(machine.numa_nodes.size(), 2u);
  EXPECT_EQ(machine.cores.size(), 8u);
  EXPECT_EQ(machine.processors.size(), 16u);
  EXPECT_EQ(usable_cores(machine), 8);
  ASSERT_EQ(std::count_if(machine.caches.begin(), machine.caches.end(),
                          [](const Cache& c) { return c.level == 3; }),
            2);
  EXPECT_EQ(machine.numa_nodes[1].cores, (std::vector<int>{4, 5, 6, 7}));
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(machine.cores[i].package, static_cast<int>(i / 4));
    EXPECT_EQ(machine.cores[i].numa_node, static_cast<int>(i / 4));
    EXPECT_EQ(machine.cores[i].processors.size(), 2u);
  }
  std::set<int> numbers;
  for (const Processor& processor : machine.processors) numbers.insert(processor.os_index);
  EXPECT_EQ(numbers.size(), 16u);
}

TEST(Machine, without_cores_or_packages_each_processor_is_a_core) {
  const Topology machine = read_synthetic("numa:1 pu:3");
  EXPECT_EQ(machine.cores.size(), 3u);
  EXPECT_EQ(machine.packages.size(), 1u);
  EXPECT_EQ(usable_cores(machine), 3);
}

TEST(Machine, nonsense_is_refused_with_its_text) {
  EXPECT_NE(error_of([] { read_synthetic("two of them"); }).find("two of them"), std::string::npos);
  EXPECT_NE(error_of([] { read_hwloc_xml("<topology", "machine.xml"); }).find("machine.xml"),
            std::string::npos);
}

TEST(Machine, xml_describes_the_same_machine) {
  const Topology machine = read_synthetic("package:2 numa:2 l2:2 core:2 pu:1");
  const Topology again = read_hwloc_xml(machine.hwloc_xml, "copy");
  EXPECT_EQ(again.cores, machine.cores);
  EXPECT_EQ(again.numa_nodes, machine.numa_nodes);
  EXPECT_EQ(again.caches, machine.caches);
  EXPECT_EQ(again.processors, machine.processors);
}

TEST(Topology, processor_limit_bounds_usable_cores) {
  Topology machine = read_synthetic("core:8 pu:1");
  EXPECT_EQ(usable_cores(machine), 8);
  machine.processor_limit = 2.5;
  EXPECT_EQ(usable_cores(machine), 3);
  machine.processor_limit = 0.2;
  EXPECT_EQ(usable_cores(machine), 1);
  machine.processor_limit = 0;
  for (Processor& processor : machine.processors) processor.usable = processor.core < 2;
  EXPECT_EQ(usable_cores(machine), 2);
  EXPECT_EQ(usable_core_list(machine), (std::vector<int>{0, 1}));
}

}  // namespace
}  // namespace tugline::topology

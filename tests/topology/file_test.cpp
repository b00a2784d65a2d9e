// SPDX-License-Identifier: Apache-2.0
#include "topology/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "topology/machine.h"
#include "topology/placement.h"

namespace tugline::topology {
namespace {

using base::Json;

template <class Call>
std::string error_of(ErrorCode code, Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

class Directory {
 public:
  Directory() {
    std::string pattern = testing::TempDir() + "tugline-topology-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "mkdtemp failed";
    path_ = pattern;
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

Topology example() {
  Topology topology = read_synthetic("package:2 numa:1 l3:1 core:2 pu:2");
  topology.processors[3].usable = false;
  topology.processor_limit = 3.5;
  attach_host_devices(topology, place_compact(topology, 3), {"u0", "u1", "u2"});
  return topology;
}

TEST(TopologyFile, what_is_dumped_is_read_back) {
  for (Topology topology : {example(), read_machine(), read_synthetic("pu:1")}) {
    topology.origin = "copy";
    EXPECT_EQ(parse_topology(dump_topology(topology), "copy"), topology);
  }
}

TEST(TopologyFile, is_saved_and_loaded) {
  Directory directory;
  const std::string path = directory.file("machine.json");
  Topology topology = example();
  save_topology(topology, path);
  topology.origin = path;
  EXPECT_EQ(load_topology(path), topology);
  save_topology(read_synthetic("pu:2"), path);  // replaces a longer one
  EXPECT_EQ(load_topology(path).processors.size(), 2u);
}

TEST(TopologyFile, may_be_written_by_hand) {
  const Topology topology = parse_topology(R"({
    "format": "tugline-topology", "version": 1,
    "packages": [{"model": "made up"}],
    "numa_nodes": [{"os_index": 0, "memory_bytes": 1024, "cores": [0, 1]}],
    "cores": [{"package": 0, "numa_node": 0, "processors": [{"os_index": 4}]},
              {"package": 0, "numa_node": 0, "processors": [{"os_index": 7, "usable": false}]}]})",
                                           "hand.json");
  EXPECT_EQ(topology.origin, "hand.json");
  EXPECT_EQ(usable_cores(topology), 1);
  EXPECT_EQ(topology.processors[1].os_index, 7);
  EXPECT_TRUE(topology.hwloc_xml.empty());
}

TEST(TopologyFile, missing_and_forbidden_files_are_named) {
  Directory directory;
  const std::string missing = directory.file("none.json");
  EXPECT_NE(error_of(ErrorCode::not_found, [&] { load_topology(missing); }).find(missing), std::string::npos);
  const std::string nowhere = directory.file("no/such/folder.json");
  EXPECT_NE(error_of(ErrorCode::not_found, [&] { save_topology(example(), nowhere); }).find(nowhere),
            std::string::npos);
  EXPECT_NE(error_of(ErrorCode::system, [&] { load_topology(directory.file("")); }), "");
  const std::string pipe = directory.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(error_of(ErrorCode::invalid_argument, [&] { load_topology(pipe); }).find(pipe + " is a pipe"),
            std::string::npos);
  EXPECT_NE(error_of(ErrorCode::invalid_argument, [] { load_topology("/dev/zero"); }).find("is longer than"),
            std::string::npos);
  EXPECT_NE(error_of(ErrorCode::system, [&] { save_topology(example(), pipe); }).find("nobody reads"),
            std::string::npos);
}

// Each change makes a wrong file, and the error says what is wrong with it.
TEST(TopologyFile, wrong_files_are_refused_with_the_reason) {
  struct Case {
    const char* reason;
    void (*change)(Json& root);
  };
  const Case cases[] = {
      {"no topology file", nullptr},
      {"not a topology file", [](Json& root) { root["format"] = "other"; }},
      {"version 2", [](Json& root) { root["version"] = 2; }},
      {"package 9", [](Json& root) { root["cores"][0]["package"] = 9; }},
      {"NUMA node -1", [](Json& root) { root["cores"][0]["numa_node"] = -1; }},
      {"no processor", [](Json& root) { root["cores"][1]["processors"] = Json::array(); }},
      {"negative or taken", [](Json& root) { root["cores"][1]["processors"][0]["os_index"] = 0; }},
      {"core 77", [](Json& root) { root["caches"][0]["cores"][0] = 77; }},
      {"device 5", [](Json& root) { root["links"][0]["to"] = 5; }},
      {"to itself", [](Json& root) { root["links"][0]["to"] = 0; }},
      {"bytes/s", [](Json& root) { root["links"][0]["bytes_per_second"] = 0; }},
      {"'warp'", [](Json& root) { root["links"][0]["kind"] = "warp"; }},
      {"'tpu'", [](Json& root) { root["devices"][0]["kind"] = "tpu"; }},
      {"-5 bytes", [](Json& root) { root["numa_nodes"][0]["memory_bytes"] = -5; }},
      {"limit", [](Json& root) { root["processor_limit"] = -1.0; }},
      {"hwloc XML", [](Json& root) { root["caches"][0]["bytes"] = 12345; }},
      {"hwloc", [](Json& root) { root["hwloc_xml"] = "<nothing/>"; }},
      {"small number", [](Json& root) { root["cores"][0]["package"] = std::int64_t{1} << 40; }},
  };
  const std::string text = dump_topology(example());
  for (const Case& wrong : cases) {
    SCOPED_TRACE(wrong.reason);
    if (wrong.change == nullptr) {
      EXPECT_NE(error_of(ErrorCode::invalid_argument, [&] { parse_topology("{}", "f.json"); }).find("f.json"),
                std::string::npos);
      continue;
    }
    Json root = Json::parse(text);
    wrong.change(root);
    const std::string error =
        error_of(ErrorCode::invalid_argument, [&] { parse_topology(root.dump(), "f.json"); });
    EXPECT_NE(error.find(wrong.reason), std::string::npos) << error;
  }
  EXPECT_NE(error_of(ErrorCode::invalid_argument, [&] { parse_topology("no json", "f.json"); }), "");
}

}  // namespace
}  // namespace tugline::topology

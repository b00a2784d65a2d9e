// SPDX-License-Identifier: Apache-2.0
// The table itself.
#include <algorithm>
#include <cctype>
#include <iterator>

#include "base/settings.h"

namespace tugline::base {
namespace {

constexpr double kTwoToThe40 = 1099511627776.0;
/// Names of the builders, which live a floor above; a test holds the two lists together.
constexpr std::string_view kPlanBuilders[] = {
    "one_shot_packet", "direct", "one_shot",     "two_shot",      "ring",
    "recursive",       "tree",   "hierarchical", "point_to_point"};

constexpr SettingRow same_on_all_ranks(SettingRow row) {
  row.same_on_all_ranks = true;
  return row;
}

constexpr SettingRow kRows[] = {
    {"job",
     &Settings::job,
     "",
     "from the launcher; a private job when alone",
     "Name of the job: processes with the same name on one host find the same broker.",
     0,
     0,
     Secrecy::open,
     {},
     SettingPlace::environment},
    {"rank",
     &Settings::rank,
     "",
     "from the launcher",
     "Number of this rank, from 0.",
     0,
     kMostRanks - 1,
     Secrecy::open,
     {},
     SettingPlace::environment},
    {"size",
     &Settings::size,
     "",
     "from the launcher",
     "Number of ranks of the job.",
     1,
     kMostRanks,
     Secrecy::open,
     {},
     SettingPlace::environment},
    {"local_rank",
     &Settings::local_rank,
     "",
     "from the launcher",
     "Number of this rank among those of its host; chooses the device.",
     0,
     kMostRanks - 1,
     Secrecy::open,
     {},
     SettingPlace::environment},
    {"runtime_dir", &Settings::runtime_dir, "",
     "$XDG_RUNTIME_DIR/tugline, else /run/user/UID/tugline, else /tmp/tugline-UID",
     "Directory under which every job keeps its socket and token file; made with mode 0700."},
    {"socket_path", &Settings::socket_path, "", "RUNTIME_DIR/JOB/broker.sock",
     "Path of the broker's socket; its last part has at most 80 bytes."},
    {"token", &Settings::token, "", "from the token file beside the socket",
     "Secret of the job: 64 hexadecimal digits.", 0, 0, Secrecy::secret},
    {"broker_bin", &Settings::broker_bin, "", "beside the library or program, else in PATH",
     "Program that is started as `<program> broker` when a job has no broker yet."},
    {"spawn_broker", &Settings::spawn_broker, "", "",
     "Start a broker when none answers; `tugline run` turns it off for its ranks, whose broker it has "
     "started."},
    {"config_file",
     &Settings::config_file,
     "",
     "$XDG_CONFIG_HOME/tugline.toml, else /etc/tugline.toml",
     "Path of the TOML file.",
     0,
     0,
     Secrecy::open,
     {},
     SettingPlace::environment},
    {"debug", &Settings::debug, "", "", "Least important level that is logged."},
    {"log_file", &Settings::log_file, "", "stderr",
     "File the log is appended to; %h becomes the host's name, %p the process id."},
    {"report_after", &Settings::report_after, "time", "",
     "A wait of this length is reported with what is awaited from whom and who is stopped, then after twice, "
     "four times the time, up to once a minute; 0 never.",
     0, 1e9},
    {"fail_after", &Settings::fail_after, "time", "",
     "A wait of this length, time in which the waiter is stopped not counted, ends with an error; 0 never.",
     0, 1e9},
    {"heartbeat_ms", &Settings::heartbeat_ms, "ms", "", "Time between two heartbeats of a rank.", 1, 60000},
    {"spin_us", &Settings::spin_us, "us", "",
     "How long a wait spins before it sleeps, when every rank has its own core. Ranks that share cores yield "
     "for "
     "as long, but not above 50 us.",
     0, 1e6},
    same_on_all_ranks(
        {"check", &Settings::check, "", "",
         "On: where all ranks get something of each other, none leaves before it has seen that all make the "
         "same call, and a root that needs nothing finds out within its next calls. Off: calls are compared "
         "only by ranks that wait for each other anyway, so that some differences are no error."}),
    {"zero_copy", &Settings::zero_copy, "", "",
     "Reach the others' buffers directly where all of them are memory of the library (Job::allocate) or "
     "registered (Job::register_memory), or all ranks are threads of one process."},
    same_on_all_ranks(
        {"deterministic", &Settings::deterministic, "", "",
         "Combine what is reduced in rank order, so that results have the same bits whatever the sizes, the "
         "buffers, the cores and the NUMA nodes. Off: in the order that is expected to be fastest, which "
         "follows from these."}),
    same_on_all_ranks({"plan", &Settings::plan, "", "chosen by size",
                       "Force the plan builder of this name wherever it can serve the call.", 0, 0,
                       Secrecy::open, kPlanBuilders}),
    same_on_all_ranks({"scratch_bytes", &Settings::scratch_bytes, "bytes", "",
                       "Scratch memory per rank and communicator.", 65536, kTwoToThe40}),
    {"member_limit_bytes", &Settings::member_limit_bytes, "bytes", "",
     "Shared memory that one member may deposit with the broker; 0 is no limit.", 0, kTwoToThe40},
    {"job_limit_bytes", &Settings::job_limit_bytes, "bytes", "",
     "Shared memory that all members of a job may deposit with its broker; 0 is no limit.", 0, kTwoToThe40},
    {"import_limit_bytes", &Settings::import_limit_bytes, "bytes", "",
     "Memory of other ranks that a rank keeps mapped for collectives that reach it directly; what is beyond "
     "is "
     "unmapped, the longest unused first. An operation whose buffers, those of all other ranks, do not fit "
     "goes through scratch. "
     "0 is "
     "no limit.",
     0, kTwoToThe40},
    {"import_limit_mappings", &Settings::import_limit_mappings, "", "",
     "The same as a number of mappings: one per buffer that another rank has allocated or registered. 0 is "
     "no "
     "limit.",
     0, 65536},
    {"topology", &Settings::topology, "", "what the system says",
     "Path of a topology file that is used in place of what the system says of this machine's cores and "
     "nodes."},
    {"host_devices", &Settings::host_devices, "", "", "Number of host devices in this process.", 1, 64},
    {"kernel", &Settings::kernel, "", "the running kernel",
     "Behave as on this older Linux kernel, 5.10 or newer: features that are newer are not used."},
};

struct TypeName {
  std::string_view operator()(std::string Settings::*) const { return "text"; }
  std::string_view operator()(bool Settings::*) const { return "on or off"; }
  std::string_view operator()(std::uint32_t Settings::*) const { return "integer"; }
  std::string_view operator()(std::uint64_t Settings::*) const { return "size"; }
  std::string_view operator()(std::optional<std::uint32_t> Settings::*) const { return "integer"; }
  std::string_view operator()(std::chrono::milliseconds Settings::*) const { return "time"; }
  std::string_view operator()(LogLevel Settings::*) const { return "level"; }
};

}  // namespace

std::span<const SettingRow> settings_table() {
  return kRows;
}

std::string variable_of(const SettingRow& row) {
  std::string name = "TUGLINE_";
  std::transform(row.name.begin(), row.name.end(), std::back_inserter(name),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

std::string_view type_of(const SettingRow& row) noexcept {
  return std::visit(TypeName{}, row.field);
}

std::string meaning_of(const SettingRow& row) {
  return std::string(row.help) + (row.same_on_all_ranks ? " The same on all ranks of a job." : "");
}

std::string_view name_of(Origin origin) noexcept {
  constexpr std::string_view kNames[] = {"default", "file", "environment"};
  return kNames[static_cast<std::size_t>(origin)];
}

}  // namespace tugline::base

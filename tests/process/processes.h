// SPDX-License-Identifier: Apache-2.0
// Ranks as processes: started, talked to, killed, waited for, with a runtime directory of their own.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tugline::process {

using namespace std::chrono_literals;
using Milliseconds = std::chrono::milliseconds;

inline constexpr Milliseconds kPatience = 30s;  ///< for anything that happens at once on an idle machine

/// Looks often until `condition` holds; false after `limit`.
bool eventually(const std::function<bool()>& condition, Milliseconds limit = kPatience);

struct Launch {
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;  ///< on top of the test's own without TUGLINE_* but KERNEL
  std::function<void()> before_exec;               ///< in the child; exits it to refuse
};

struct Ended {
  int exit_code = -1;  ///< -1 when a signal ended it
  int signal = 0;
  std::string output;
  std::string error;
};

class Process {
 public:
  explicit Process(const Launch& launch);
  ~Process();  ///< kills it if it still runs
  Process(Process&&) noexcept;
  Process& operator=(Process&&) noexcept = delete;

  pid_t pid() const noexcept { return pid_; }
  void kill(int signal) const;
  /// True when its first thread sleeps at this moment.
  bool sleeps() const;
  /// Writes a line to its standard input.
  void say(const std::string& line);
  /// Reads until its output has the line; false at its end or after the limit.
  bool has_said(const std::string& line, Milliseconds limit = kPatience);
  /// Waits for the end; kills it, as a failure, after the limit.
  Ended wait(Milliseconds limit = kPatience);
  const std::string& output() const noexcept { return ended_.output; }
  const std::string& error() const noexcept { return ended_.error; }

 private:
  bool read_some(int timeout_ms);

  pid_t pid_ = 0;
  int input_ = -1;
  int output_ = -1;
  int error_ = -1;
  Ended ended_;
};

/// What a job's processes share: a name and a runtime directory, which goes with this.
class Surroundings {
 public:
  Surroundings();
  ~Surroundings();
  Surroundings(const Surroundings&) = delete;
  Surroundings& operator=(const Surroundings&) = delete;

  const std::string& job() const noexcept { return job_; }
  std::filesystem::path runtime() const { return folder_ / "runtime"; }
  const std::filesystem::path& folder() const noexcept { return folder_; }
  std::string socket_path() const { return (runtime() / job_ / "broker.sock").string(); }

  /// `process_scenario NAME ARGUMENTS...` as one rank.
  Launch rank(int rank, int size, std::vector<std::string> scenario) const;
  /// All ranks of a job.
  std::vector<std::unique_ptr<Process>> ranks(
      int size, const std::vector<std::string>& scenario, const std::function<void()>& before_exec = {},
      const std::map<std::string, std::string>& environment = {}) const;
  /// `tugline broker` for this job, serving.
  std::unique_ptr<Process> broker() const;
  /// Its command, to be started by hand.
  Launch broker_launch() const;

  /// Brokers of this job, spawned ones too.
  std::vector<pid_t> brokers() const;
  /// Waits until no broker and no file of the job is left.
  bool nothing_left() const;
  std::vector<std::string> files() const;

 private:
  std::string job_;
  std::filesystem::path folder_;
};

/// Waits for all; expects exit code `code` of each, and gives their ends.
std::vector<Ended> wait_for_all(std::vector<std::unique_ptr<Process>>& processes, int code);

/// Expects the three lines of an error whose first names `code`; returns the first line.
std::string expect_three_lines(const std::string& text, const std::string& code);

/// Milliseconds that the scenario printed as "took N ms".
double took_ms(const std::string& output);

}  // namespace tugline::process

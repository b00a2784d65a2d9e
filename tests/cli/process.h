// SPDX-License-Identifier: Apache-2.0
// Runs the tugline command as a user would, with a runtime directory and a mark of its own.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace tugline::cli {

/// A directory that goes with its owner.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

struct Ended {
  int exit_code = -1;  ///< -1 when a signal ended it
  int signal = 0;
  std::string output;
  std::string error;
};

/// A running `tugline ...`. It and all that come from it carry a mark in their environment by which they are
/// found again, and put their sockets into a directory of the test.
class Command {
 public:
  struct Options {
    std::vector<std::pair<std::string, std::string>> environment;
    std::string input;                 ///< standard input
    rlim_t descriptors = 0;            ///< limit of open descriptors; 0: the test's
    std::optional<rlim_t> file_bytes;  ///< limit on the size of files
    bool close_output_early = false;   ///< nobody reads standard output
    bool no_output = false;            ///< descriptor 1 is closed
    std::string output_file;           ///< standard output, instead of a pipe to the test
    std::string error_file;            ///< standard error, likewise
    bool foreign_proc = false;         ///< in a PID namespace of its own, with the /proc of the one outside
  };
  explicit Command(std::vector<std::string> arguments) : Command(std::move(arguments), Options()) {}
  Command(std::vector<std::string> arguments, const Options& options);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  pid_t pid() const noexcept { return pid_; }
  void signal(int number) const;
  /// From now on nobody reads standard output.
  void stop_reading() { output_.reset(); }
  /// Reads until standard output or error holds `text` so many times; false at the end of both or after 30 s.
  bool wait_for(const std::string& text, int times = 1);
  /// Waits for the end; kills it after 60 s.
  Ended wait();

  /// Processes that still carry the mark.
  std::vector<pid_t> marked() const;
  /// Waits until no marked process is left, at most 10 s.
  bool nothing_left() const;
  /// Files in the runtime directory.
  std::vector<std::string> files() const;

 private:
  bool read_some(int timeout_ms);

  TemporaryDirectory runtime_;
  std::string mark_;
  pid_t pid_ = 0;
  base::UniqueFd output_;
  base::UniqueFd error_;
  Ended ended_;
};

/// Runs to the end.
Ended run_command(std::vector<std::string> arguments);

}  // namespace tugline::cli

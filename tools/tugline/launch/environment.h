// SPDX-License-Identifier: Apache-2.0
// What a rank finds in its environment.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tugline::cli {

/// What all ranks of a job have in common.
struct RankEnvironment {
  int size = 1;
  std::string job;
  std::string socket_path;
  std::string token;    ///< 64 hex digits; empty: read from the file beside the socket
  int master_port = 0;  ///< for programs that follow torchrun
  std::vector<std::pair<std::string, std::string>> added;
};

/// Whether the variable says which rank of which job a process is: what `run` tells each rank itself.
bool says_who_a_rank_is(std::string_view variable) noexcept;

/// This process's environment with tugline's and torchrun's variables of one rank, then the added ones; a
/// later value replaces an earlier one.
std::vector<std::string> environment_of(const RankEnvironment& common, int rank);

/// A TCP port of 127.0.0.1 that was free a moment ago. Throws Error{system}.
int free_port();

}  // namespace tugline::cli

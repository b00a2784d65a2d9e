// SPDX-License-Identifier: Apache-2.0
#include "launch/environment.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "base/settings.h"
#include "base/unique_fd.h"
#include "tugline/error.h"

namespace tugline::cli {

bool says_who_a_rank_is(std::string_view variable) noexcept {
  constexpr std::string_view kNames[] = {
      "TUGLINE_RANK",        "TUGLINE_SIZE", "TUGLINE_LOCAL_RANK", "TUGLINE_JOB", "TUGLINE_TOKEN",
      "TUGLINE_SOCKET_PATH", "RANK",         "WORLD_SIZE",         "LOCAL_RANK",  "LOCAL_WORLD_SIZE"};
  return std::find(std::begin(kNames), std::end(kNames), variable) != std::end(kNames);
}

std::vector<std::string> environment_of(const RankEnvironment& common, int rank) {
  auto variables = base::process_environment();
  auto set = [&variables](const std::string& name, std::string value) { variables[name] = std::move(value); };
  std::string number = fmt::format("{}", rank);
  std::string size = fmt::format("{}", common.size);
  set("TUGLINE_RANK", number);
  set("TUGLINE_SIZE", size);
  set("TUGLINE_LOCAL_RANK", number);
  set("TUGLINE_JOB", common.job);
  set("TUGLINE_SOCKET_PATH", common.socket_path);
  // A rank that comes after the broker's end would be alone with one of its own.
  set("TUGLINE_SPAWN_BROKER", "off");
  variables.erase("TUGLINE_TOKEN");
  if (!common.token.empty()) set("TUGLINE_TOKEN", common.token);
  set("RANK", number);
  set("WORLD_SIZE", size);
  set("LOCAL_RANK", number);
  set("LOCAL_WORLD_SIZE", size);
  set("GROUP_RANK", "0");
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", fmt::format("{}", common.master_port));
  for (const auto& [name, value] : common.added) set(name, value);
  std::vector<std::string> result;
  result.reserve(variables.size());
  for (const auto& [name, value] : variables) result.push_back(name + "=" + value);
  return result;
}

int free_port() {
  base::UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (!socket || ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw Error(ErrorCode::system, "cannot find a free TCP port for MASTER_PORT",
                "give one with --env MASTER_PORT=29500", {.native_code = errno});
  }
  return ntohs(address.sin_port);
}

}  // namespace tugline::cli

// SPDX-License-Identifier: Apache-2.0
#include "broker/connect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "broker/spawn.h"
#include "tugline/error.h"

namespace tugline::broker {
namespace {

constexpr int kMaxSpawns = 3;

bool may_come_up(int reason) {
  // Not there yet, a dead one's socket, or a full queue.
  return reason == ENOENT || reason == ECONNREFUSED || reason == EAGAIN;
}

Found find_or_start(const Place& place, const std::string& job, const std::string& token_hex,
                    WhenAbsent absent, std::uint64_t deadline_ns, Made& made) {
  int spawns = 0;
  std::chrono::microseconds pause{100};
  for (;;) {
    // Opened anew each time: a broker that ends takes its directory with it.
    auto directory =
        open_directory(place, absent == WhenAbsent::spawn ? Missing::make : Missing::fail, &made);
    int reason = ENOENT;
    if (directory) {
      if (auto socket = connect_to(place, directory.get(), reason))
        return {std::move(socket), std::move(directory)};
      if (!may_come_up(reason))
        throw Error(reason == EACCES || reason == EPERM ? ErrorCode::permission_denied : ErrorCode::system,
                    fmt::format("cannot connect to the broker at {}", place.socket_path),
                    "check that the path names the job's socket and belongs to this user",
                    {.operation = "connect", .native_code = reason});
    }
    if (absent == WhenAbsent::fail && reason != EAGAIN)
      throw Error(
          ErrorCode::not_found, fmt::format("no broker answers at {}", place.socket_path),
          "it has ended or is another one's path: `tugline broker --job NAME` starts one and prints its "
          "path, `tugline run` without --broker starts its own",
          {.operation = "connect", .native_code = reason});
    if (absent == WhenAbsent::spawn && lock_directory(place, directory.get())) {
      // Nobody serves and nobody else is about to: it is on us.
      if (spawns == kMaxSpawns)
        throw Error(
            ErrorCode::broker_lost,
            fmt::format("{} brokers for {} ended before they could be asked", spawns, place.socket_path),
            fmt::format("run `tugline broker --job {}` by hand to see why", job));
      ++spawns;
      base::log(base::LogLevel::debug, "starting a broker for {}", place.socket_path);
      spawn_broker({place, job, token_hex, std::move(directory), {}}, deadline_ns);
      continue;
    }
    if (base::running_ns() >= deadline_ns)
      throw Error(ErrorCode::timed_out, fmt::format("no broker answers at {} in time", place.socket_path),
                  "check that the machine is not overloaded, or give a longer deadline",
                  {.operation = "connect", .native_code = reason});
    // There is nothing to be woken by before the socket exists; the deadline bounds this.
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(2'000));
  }
}

}  // namespace

Found find_broker(const Place& place, const std::string& job, const std::string& token_hex, WhenAbsent absent,
                  std::uint64_t deadline_ns) {
  Made made;
  try {
    return find_or_start(place, job, token_hex, absent, deadline_ns, made);
  } catch (...) {
    if (absent == WhenAbsent::spawn) remove_if_dead(place, made);
    throw;
  }
}

Token token_for(const Found& found, const Place& place, const std::string& token_hex) {
  const auto token = parse_token(token_hex.empty() ? read_token(place, found.directory.get()) : token_hex);
  if (!token)
    throw Error(ErrorCode::permission_denied, "the token given is not 64 hexadecimal digits",
                "unset TUGLINE_TOKEN to use the token file beside the socket, or pass the job's own token");
  return *token;
}

}  // namespace tugline::broker

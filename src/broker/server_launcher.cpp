// SPDX-License-Identifier: Apache-2.0
// What a launcher says of its ranks. It sees the end of a process that the broker never met.
#include <fmt/format.h>
#include <poll.h>

#include "base/clock.h"
#include "broker/server.h"
#include "tugline/error.h"

namespace tugline::broker {

Server::Verdict Server::handle_attach(Connection& connection, const core::FrameView& frame) {
  core::AttachLauncher attach;
  if (!core::decode(frame, attach)) return Verdict::violation;
  if (ending_) return Verdict::close;
  check_admission(connection, attach.token, attach.job);
  if (owned_ &&
      (!options_.owner || check_pidfd(options_.owner.get(), connection.peer.pid) != PidfdVerdict::genuine))
    throw Error(
        ErrorCode::permission_denied,
        fmt::format("process {} is not the one that this broker was started for", connection.peer.pid),
        "only the launcher of a job may say which of its ranks end");
  refuse_second_launcher(connection.id);
  connection.launcher = true;
  half_open_.remove(connection.id);
  reply_done(connection, frame.request);
  return Verdict::keep;
}

// Ranks of two launches have the same numbers: they would reduce together, and be told each other's ends.
void Server::refuse_second_launcher(std::uint64_t newcomer) {
  for (auto at = connections_.begin(); at != connections_.end();) {
    const auto& other = (at++)->second;
    if (!other.launcher || other.id == newcomer) continue;
    // It may have gone a moment ago, with the end of its socket still to be read.
    pollfd socket{other.socket.get(), POLLRDHUP, 0};
    if (::poll(&socket, 1, 0) > 0 && (socket.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
      close_connection(other.id, core::LossCause::socket);
      continue;
    }
    throw Error(ErrorCode::already_exists,
                fmt::format("a job is running at this broker, started by process {} {} s ago", other.peer.pid,
                            (base::monotonic_ns() - other.accepted_ns) / 1'000'000'000),
                "wait until that job has ended, or start this one at a broker of its own");
  }
}

Server::Verdict Server::handle_launcher(Connection& connection, const core::FrameView& frame) {
  const auto check = [](int rank) {
    if (rank < 0 || rank >= static_cast<int>(core::kMaxMembers))
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("rank {} is not between 0 and {}", rank, core::kMaxMembers - 1),
                  "number the ranks from 0");
  };
  core::RankEnded ended;
  core::RankStarts starts;
  if (core::decode(frame, ended)) {
    check(ended.rank);
    membership_.will_not_come(ended.rank, {ended.exit_code, ended.signal}, connection.id);
  } else if (core::decode(frame, starts)) {
    check(starts.rank);
    membership_.may_come(starts.rank);
  } else {
    return Verdict::violation;
  }
  reply_done(connection, frame.request);
  return Verdict::keep;
}

}  // namespace tugline::broker

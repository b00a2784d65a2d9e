// SPDX-License-Identifier: Apache-2.0
#include "broker/launcher_link.h"

#include "base/clock.h"
#include "base/log.h"
#include "broker/connect.h"
#include "broker/identity.h"
#include "broker/place.h"
#include "broker/seqpacket.h"
#include "tugline/error.h"

namespace tugline::broker {

LauncherLink::LauncherLink(const std::string& socket_path, const std::string& job,
                           const std::string& token_hex, std::chrono::milliseconds deadline) {
  const auto deadline_ns = base::running_deadline(deadline);
  const auto place = place_of(socket_path, job);
  auto found = find_broker(place, job, token_hex, WhenAbsent::fail, deadline_ns);
  core::AttachLauncher message;
  message.token = token_for(found, place, token_hex);
  message.job = job;
  channel_ = std::make_unique<Channel>(std::move(found.socket), place.socket_path);
  channel_->call<core::Done>(message, deadline_ns, "attach as launcher");
}

template <class Message>
void LauncherLink::tell(const Message& message) noexcept {
  core::FrameWriter frame;
  core::encode(message, 0, frame);
  // Room for every rank's message is in the socket; it is full only when the broker is stopped for long.
  if (send_message(channel_->socket(), frame.bytes()) == SendOutcome::full)
    base::log(base::LogLevel::warn, "the broker does not read: it is not told of the end of rank {}",
              message.rank);
}

void LauncherLink::rank_ended(int rank, core::ProcessEnd end) noexcept {
  tell(
      core::RankEnded{rank, static_cast<std::uint8_t>(end.exit_code), static_cast<std::uint8_t>(end.signal)});
}

void LauncherLink::rank_starts(int rank) noexcept {
  tell(core::RankStarts{rank});
}

}  // namespace tugline::broker

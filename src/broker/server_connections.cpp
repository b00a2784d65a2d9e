// SPDX-License-Identifier: Apache-2.0
// How connections come, are read, are written and go.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "broker/event_tag.h"
#include "broker/server.h"

namespace tugline::broker {
namespace {

// One connection's turn: enough for a burst, little enough that the others need not wait.
constexpr int kFramesPerTurn = 16;
constexpr int kAcceptsPerTurn = 64;
// A member that does not read its replies is cut off before it costs memory.
constexpr std::size_t kMaxOutbox = 256;
// Descriptors that stay free of connections for those who have come in already.
constexpr int kDescriptorsForMembers = 8;

}  // namespace

Server::Connection* Server::find(std::uint64_t id) noexcept {
  const auto at = connections_.find(id);
  return at == connections_.end() ? nullptr : &at->second;
}

void Server::accept_all() {
  // An earlier event of this turn may have been the last member's good-bye.
  for (int i = 0; i < kAcceptsPerTurn && endpoint_; ++i) {
    base::UniqueFd socket(::accept4(endpoint_->listener(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      try {
        adopt(std::move(socket));
      } catch (const Error& error) {
        // Of this one connection, which is closed by now.
        base::log(base::LogLevel::warn, "broker cannot take a connection: {}", error.what_failed());
      }
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EMFILE || errno == ENFILE) accept_with_reserve();
    return;
  }
}

// The table is full: without this the connection would stay in the queue and the loop would spin on it.
void Server::accept_with_reserve() {
  reserve_.reset();
  turn_away(base::UniqueFd(::accept4(endpoint_->listener(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
  reserve_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

void Server::turn_away(base::UniqueFd socket) {
  if (!socket) return;
  Connection connection;
  connection.socket = std::move(socket);
  reply_failure(connection, 0,
                Error(ErrorCode::out_of_memory,
                      fmt::format("the broker has {} of {} descriptors in use, a member needs two",
                                  descriptors_used(), descriptor_limit_),
                      "raise the broker's limit of open files (ulimit -n), or end members"));
  ++statistics_.refused;
}

void Server::adopt(base::UniqueFd socket) {
  ++statistics_.accepted;
  // Silent ones make room for the new one, oldest first: a good member says Hello at once.
  while (half_open_.size() >= std::max<std::size_t>(1, options_.max_half_open) ||
         (!half_open_.empty() && !descriptors_left(kDescriptorsForMembers))) {
    ++statistics_.refused;
    close_connection(half_open_.front(), core::LossCause::socket);
  }
  // Without room for its pidfd, its Hello would arrive cut off.
  if (!descriptors_left(1)) return turn_away(std::move(socket));
  Connection connection;
  connection.id = ++last_connection_;
  connection.accepted_ns = base::monotonic_ns();
  connection.first_frame_by_ns =
      now() + static_cast<std::uint64_t>(std::chrono::nanoseconds(options_.first_frame_within).count());
  connection.peer = peer_identity(socket.get());
  connection.socket = std::move(socket);
  // Little room for replies that are not read: descriptors in flight count against the broker.
  const int send_bytes = 8192;
  ::setsockopt(connection.socket.get(), SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof(send_bytes));
  const auto id = connection.id;
  watch(connection.socket.get(), tag_of(EventKind::connection, id), EPOLLIN | EPOLLRDHUP);
  connections_.emplace(id, std::move(connection));
  half_open_.push_back(id);
  read_from(id);
}

void Server::read_from(std::uint64_t id) {
  FrameBuffer buffer;
  for (int i = 0; i < kFramesPerTurn; ++i) {
    auto* connection = find(id);
    if (connection == nullptr) return;
    auto received = receive_message(connection->socket.get(), buffer);
    if (received.outcome == ReceiveOutcome::nothing) return;
    auto verdict = received.outcome == ReceiveOutcome::closed ? Verdict::close : Verdict::violation;
    if (received.outcome == ReceiveOutcome::message)
      verdict = handle(*connection, {buffer.data(), received.bytes}, std::move(received.descriptors));
    if (verdict == Verdict::keep) continue;
    if (verdict == Verdict::violation) {
      ++statistics_.violations;
      // Strangers must not be able to fill a log.
      base::log(connection->member ? base::LogLevel::warn : base::LogLevel::debug,
                "broker closes connection {}: it breaks the protocol", id);
    }
    close_connection(id, core::LossCause::socket);
    return;
  }
}

void Server::send_frame(Connection& connection, const core::FrameWriter& frame,
                        std::shared_ptr<const base::UniqueFd> descriptor) {
  if (connection.outbox.empty()) {
    const int carried = descriptor ? descriptor->get() : -1;
    switch (send_message(connection.socket.get(), frame.bytes(), carried)) {
      case SendOutcome::sent:
      case SendOutcome::closed:  // the loop hears of it by itself
        return;
      case SendOutcome::full:
        break;
      case SendOutcome::too_many_descriptors:
        return cut_off(connection);
    }
  }
  if (connection.outbox.size() >= kMaxOutbox) return cut_off(connection);
  const auto bytes = frame.bytes();
  connection.outbox.push_back({{bytes.begin(), bytes.end()}, std::move(descriptor)});
  if (connection.outbox.size() == 1 && connection.id != 0) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP | EPOLLOUT;
    event.data.u64 = tag_of(EventKind::connection, connection.id);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.socket.get(), &event);
  }
}

void Server::cut_off(Connection& connection) noexcept {
  base::log(base::LogLevel::warn, "broker cuts connection {} off: it does not read its replies",
            connection.id);
  // Closing here would pull the connection from under the caller; this makes the loop do it.
  ::shutdown(connection.socket.get(), SHUT_RDWR);
}

void Server::flush(Connection& connection) {
  while (!connection.outbox.empty()) {
    const auto& next = connection.outbox.front();
    const int carried = next.descriptor ? next.descriptor->get() : -1;
    const auto outcome = send_message(connection.socket.get(), next.bytes, carried);
    if (outcome == SendOutcome::full) return;
    if (outcome == SendOutcome::too_many_descriptors) cut_off(connection);
    if (outcome != SendOutcome::sent) break;
    connection.outbox.pop_front();
  }
  connection.outbox.clear();
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.u64 = tag_of(EventKind::connection, connection.id);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.socket.get(), &event);
}

void Server::reply_failure(Connection& connection, std::uint32_t request, const Error& error) {
  core::Failure failure;
  failure.code = error.code();
  failure.native_code = static_cast<std::int32_t>(error.context().native_code);
  failure.what_failed = error.what_failed().substr(0, core::kMaxFailureBytes);
  failure.what_to_do = error.what_to_do().substr(0, core::kMaxFailureBytes);
  core::FrameWriter frame;
  core::encode(failure, request, frame);
  send_frame(connection, frame);
}

void Server::close_connection(std::uint64_t id, core::LossCause cause) {
  const auto at = connections_.find(id);
  if (at == connections_.end()) return;
  const auto member = at->second.member;
  if (!member) half_open_.remove(id);
  values_.drop_connection(id);
  if (at->second.launcher) membership_.forget_launcher(id);
  // The slot says that the member is gone before its socket does: so a member that finds its socket closed
  // and its slot alive knows that it was the broker that died.
  if (member) {
    const auto* entry = membership_.find(*member);
    const bool ended = entry != nullptr && has_ended(entry->pidfd.get());
    membership_.died(*member, cause);
    segments_.drop_member(*member);
    announce_retired();
    if (ended) membership_.process_ended(*member);
  }
  connections_.erase(id);
  if (member) note_idle();
}

void Server::member_process_ended(std::uint64_t connection) {
  auto* member = membership_.find_by_connection(connection);
  if (member == nullptr) return;
  const auto id = member->id;
  // A forked child may keep the socket open; the process that joined is what counts.
  close_connection(connection, core::LossCause::pidfd);
  membership_.process_ended(id);
}

void Server::note_idle() noexcept {
  if (membership_.connected() == 0) idle_since_ns_ = now();
}

}  // namespace tugline::broker

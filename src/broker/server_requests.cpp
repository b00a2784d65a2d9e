// SPDX-License-Identifier: Apache-2.0
// What each request does. One that breaks the protocol ends its connection; one that asks for something
// impossible gets a Failure.
#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "broker/event_tag.h"
#include "broker/server.h"

namespace tugline::broker {
namespace {

// Descriptors that a deposit leaves for members to come.
constexpr int kDescriptorsForJoins = 4;

using core::MessageType;

}  // namespace

template <class Message>
void Server::reply(Connection& connection, std::uint32_t request, const Message& message,
                   std::shared_ptr<const base::UniqueFd> descriptor) {
  if (request == 0) return;
  core::FrameWriter frame;
  if (!core::encode(message, request, frame))
    throw Error(ErrorCode::internal, "a reply does not fit into a frame", "report this");
  send_frame(connection, frame, std::move(descriptor));
}

void Server::reply_done(Connection& connection, std::uint32_t request) {
  reply(connection, request, core::Done{});
}

Server::Verdict Server::handle(Connection& connection, std::span<const std::byte> bytes,
                               std::vector<base::UniqueFd> descriptors) {
  core::FrameView frame;
  const auto fault = core::parse_frame(bytes, frame);
  if (fault == core::FrameFault::version) {
    reply_failure(connection, frame.request,
                  Error(ErrorCode::unsupported,
                        fmt::format("the member speaks protocol version {}, the broker {}", frame.version,
                                    core::kFrameVersion),
                        "use the same tugline for all processes of a job"));
    return Verdict::violation;
  }
  if (fault != core::FrameFault::none || descriptors.size() > 1) return Verdict::violation;
  try {
    if (connection.member) return handle_request(connection, frame, descriptors);
    if (connection.launcher)
      return descriptors.empty() ? handle_launcher(connection, frame) : Verdict::violation;
    if (connection.observer)
      return descriptors.empty() ? handle_usage(connection, frame) : Verdict::violation;
    if (frame.type == static_cast<std::uint16_t>(MessageType::attach_observer))
      return descriptors.empty() ? handle_observer_attach(connection, frame) : Verdict::violation;
    if (frame.type == static_cast<std::uint16_t>(MessageType::attach_launcher))
      return descriptors.empty() ? handle_attach(connection, frame) : Verdict::violation;
    return handle_hello(connection, frame, descriptors);
  } catch (const Error& error) {
    const bool admitted = connection.member || connection.launcher || connection.observer;
    if (!admitted) {
      base::log(base::LogLevel::info, "broker refuses a connection: {}", error.what_failed());
      ++statistics_.refused;
    }
    if (!admitted || frame.request != 0) reply_failure(connection, frame.request, error);
    return admitted ? Verdict::keep : Verdict::close;
  }
}

Server::Verdict Server::handle_hello(Connection& connection, const core::FrameView& frame,
                                     std::vector<base::UniqueFd>& descriptors) {
  core::Hello hello;
  if (!core::decode(frame, hello)) return Verdict::violation;
  // Too late; the member will find, or start, the next broker.
  if (ending_) return Verdict::close;
  check_admission(connection, hello.token, hello.job);
  if (descriptors.empty() || check_pidfd(descriptors[0].get(), connection.peer.pid) != PidfdVerdict::genuine)
    throw Error(ErrorCode::permission_denied, "the member sends no pidfd of its own process",
                "join through the library, in the process that connects", {.rank = hello.rank});
  if (membership_.begins_anew(hello.rank, hello.size)) end_generation();
  auto& member = membership_.join(hello.rank, hello.size, connection.id, std::move(descriptors[0]));
  connection.member = member.id;
  half_open_.remove(connection.id);
  had_members_ = true;
  watch(member.pidfd.get(), tag_of(EventKind::member_process, connection.id), EPOLLIN);
  core::Welcome welcome;
  welcome.member = member.id;
  welcome.incarnation = member.incarnation;
  welcome.control_bytes = membership_.control_bytes();
  welcome.job = options_.job;
  reply(connection, frame.request, welcome, membership_.control_descriptor());
  return Verdict::keep;
}

void Server::check_admission(const Connection& connection, const Token& token, const std::string& job) const {
  if (connection.peer.uid != ::geteuid())
    throw Error(ErrorCode::permission_denied,
                fmt::format("user {} asks to join a job of user {}", connection.peer.uid, ::geteuid()),
                "run all processes of a job as one user");
  if (!equal_tokens(token, token_))
    throw Error(ErrorCode::permission_denied, "the token is not this job's",
                "unset TUGLINE_TOKEN to use the token file beside the socket, or pass the job's own token");
  if (!job.empty() && !options_.job.empty() && job != options_.job)
    throw Error(ErrorCode::mismatch,
                fmt::format("job \"{}\" is asked for, this broker serves \"{}\"", job, options_.job),
                "set TUGLINE_JOB and TUGLINE_SOCKET_PATH to the same job");
}

Server::Verdict Server::handle_request(Connection& connection, const core::FrameView& frame,
                                       std::vector<base::UniqueFd>& descriptors) {
  const auto member = *connection.member;
  const auto request = frame.request;
  const auto type = static_cast<MessageType>(frame.type);
  if ((type == MessageType::deposit_segment) != (descriptors.size() == 1)) return Verdict::violation;
  switch (type) {
    case MessageType::open_segment: {
      core::OpenSegment message;
      if (!core::decode(frame, message)) return Verdict::violation;
      reply_segment(connection, request, segments_.open(message.name, member), Origin::existing);
      return Verdict::keep;
    }
    case MessageType::deposit_segment: {
      core::DepositSegment message;
      if (!core::decode(frame, message)) return Verdict::violation;
      do_deposit(connection, request, message, std::move(descriptors[0]));
      return Verdict::keep;
    }
    case MessageType::import_segment: {
      core::ImportSegment message;
      if (!core::decode(frame, message)) return Verdict::violation;
      reply_segment(connection, request, segments_.import(message.id, member), Origin::existing);
      return Verdict::keep;
    }
    case MessageType::keep_segment: {
      core::KeepSegment message;
      if (!core::decode(frame, message)) return Verdict::violation;
      segments_.keep(message.id, member);
      reply_done(connection, request);
      return Verdict::keep;
    }
    case MessageType::release_segment: {
      core::ReleaseSegment message;
      if (!core::decode(frame, message)) return Verdict::violation;
      segments_.release(message.id, member);
      announce_retired();
      reply_done(connection, request);
      return Verdict::keep;
    }
    case MessageType::remove_segment: {
      core::RemoveSegment message;
      if (!core::decode(frame, message)) return Verdict::violation;
      segments_.remove(message.name);
      announce_retired();
      reply_done(connection, request);
      return Verdict::keep;
    }
    case MessageType::put_value: {
      core::PutValue message;
      if (!core::decode(frame, message)) return Verdict::violation;
      do_put(connection, request, message);
      return Verdict::keep;
    }
    case MessageType::get_value: {
      core::GetValue message;
      if (!core::decode(frame, message)) return Verdict::violation;
      do_get(connection, request, message);
      return Verdict::keep;
    }
    case MessageType::usage:
      return handle_usage(connection, frame);
    case MessageType::leave: {
      core::Leave message;
      if (!core::decode(frame, message)) return Verdict::violation;
      member_leaves(connection);
      // Before the reply: who has left last finds everything removed.
      if (is_time_to_end(now())) end();
      reply_done(connection, request);
      return Verdict::close;
    }
    case MessageType::hello:  // once is enough
    case MessageType::welcome:
    case MessageType::failure:
    case MessageType::done:
    case MessageType::segment:
    case MessageType::value:
    case MessageType::usage_report:
    case MessageType::attach_launcher:
    case MessageType::rank_ended:
    case MessageType::rank_starts:
    case MessageType::attach_observer:
      break;
  }
  return Verdict::violation;
}

void Server::reply_segment(Connection& connection, std::uint32_t request, const HeldSegment& segment,
                           Origin origin) {
  core::SegmentReply message;
  message.id = segment.id;
  message.bytes = segment.bytes;
  message.created = origin == Origin::created ? 1 : 0;
  // Who has just deposited it has it already.
  reply(connection, request, message,
        origin == Origin::created ? nullptr : std::shared_ptr<const base::UniqueFd>(segment.descriptor));
}

void Server::do_deposit(Connection& connection, std::uint32_t request, const core::DepositSegment& message,
                        base::UniqueFd descriptor) {
  if (!descriptors_left(1 + kDescriptorsForJoins))
    throw Error(ErrorCode::out_of_memory,
                fmt::format("the broker has {} of {} descriptors in use, {} are kept for members to come",
                            descriptors_used(), descriptor_limit_, kDescriptorsForJoins),
                "release segments, make fewer and larger ones, or raise the broker's limit (ulimit -n)");
  const auto deposit = segments_.deposit(message, std::move(descriptor), *connection.member);
  reply_segment(connection, request, *deposit.segment, deposit.created ? Origin::created : Origin::existing);
}

void Server::do_put(Connection& connection, std::uint32_t request, core::PutValue& message) {
  for (const auto& waiter : values_.put(message.key, message.value))
    if (auto* waiting = find(waiter.connection)) reply(*waiting, waiter.request, core::Value{message.value});
  reply_done(connection, request);
}

void Server::do_get(Connection& connection, std::uint32_t request, core::GetValue& message) {
  if (const auto* value = values_.find(message.key)) return reply(connection, request, core::Value{*value});
  if (message.wait_ms == 0)
    throw Error(ErrorCode::not_found, fmt::format("nobody has put \"{}\"", message.key),
                "put it first, or wait for it with a deadline");
  const auto deadline = now() + std::uint64_t{message.wait_ms} * 1'000'000;
  values_.wait({connection.id, request, std::move(message.key), message.wait_ms}, deadline);
}

void Server::member_leaves(Connection& connection) {
  const auto id = *connection.member;
  membership_.leave(id);
  segments_.drop_member(id);
  announce_retired();
  connection.member.reset();
  half_open_.push_back(connection.id);  // like any that is nobody's, until it is closed
  note_idle();
}

void Server::announce_retired() noexcept {
  // Before the reply: who knows that a segment was freed finds it said.
  for (const auto id : segments_.take_retired()) membership_.announce_retired(id);
}

// Also sent from server_observer.cpp.
template void Server::reply(Connection&, std::uint32_t, const core::UsageReport&,
                            std::shared_ptr<const base::UniqueFd>);
template void Server::reply(Connection&, std::uint32_t, const core::Welcome&,
                            std::shared_ptr<const base::UniqueFd>);

}  // namespace tugline::broker

// SPDX-License-Identifier: Apache-2.0
// What the broker tells of the memory that it holds, to members and to those who only look.
#include <unistd.h>

#include "broker/server.h"

namespace tugline::broker {

Server::Verdict Server::handle_observer_attach(Connection& connection, const core::FrameView& frame) {
  core::AttachObserver attach;
  if (!core::decode(frame, attach)) return Verdict::violation;
  if (ending_) return Verdict::close;
  check_admission(connection, attach.token, attach.job);
  connection.observer = true;
  half_open_.remove(connection.id);
  core::Welcome welcome;
  welcome.member = core::kMaxMembers;
  welcome.control_bytes = membership_.in_generation() ? membership_.control_bytes() : 0;
  welcome.job = options_.job;
  reply(connection, frame.request, welcome, membership_.control_descriptor());
  return Verdict::keep;
}

Server::Verdict Server::handle_usage(Connection& connection, const core::FrameView& frame) {
  core::Usage message;
  if (!core::decode(frame, message)) return Verdict::violation;
  auto report = segments_.usage(message.member);
  report.broker_pid = static_cast<std::uint32_t>(::getpid());
  report.broker_descriptors = static_cast<std::uint32_t>(descriptors_used());
  report.broker_descriptor_limit = static_cast<std::uint32_t>(descriptor_limit_);
  reply(connection, frame.request, report);
  return Verdict::keep;
}

}  // namespace tugline::broker

// SPDX-License-Identifier: Apache-2.0
#include "broker/channel.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/settings.h"
#include "broker/process_status.h"
#include "tugline/error.h"

namespace tugline::broker {
namespace {

[[noreturn]] void throw_unexpected(std::string_view operation, std::string_view broker) {
  throw Error(ErrorCode::protocol,
              fmt::format("the broker at {} gave an answer to {} that is none", broker, operation),
              "use the same tugline for all processes of a job", {.operation = std::string(operation)});
}

[[noreturn]] void throw_failure(core::Failure failure, std::string_view operation) {
  const auto code = failure.code == ErrorCode::ok ? ErrorCode::internal : failure.code;
  throw Error(code, std::move(failure.what_failed), std::move(failure.what_to_do),
              {.operation = std::string(operation), .native_code = failure.native_code});
}

void throw_if_failure(const core::FrameView& frame, std::string_view operation) {
  core::Failure failure;
  if (core::decode(frame, failure)) throw_failure(std::move(failure), operation);
}

}  // namespace

Channel::Channel(base::UniqueFd socket, std::string broker_name) noexcept
    : socket_(std::move(socket)), broker_name_(std::move(broker_name)), owner_pid_(::getpid()) {}

bool Channel::in_forked_child() const noexcept {
  return ::getpid() != owner_pid_;
}

std::uint32_t Channel::next_request() noexcept {
  // 0 means: no reply wanted.
  for (;;)
    if (const auto request = last_request_.fetch_add(1, std::memory_order_relaxed) + 1; request != 0)
      return request;
}

void Channel::throw_lost(std::string_view operation) const {
  if (parting_) throw_failure(*parting_, operation);
  throw Error(ErrorCode::broker_lost, fmt::format("the broker at {} is gone", broker_name_),
              "start the job again; named memory that it held is lost",
              {.operation = std::string(operation)});
}

void Channel::throw_timed_out(std::string_view operation) const {
  throw Error(ErrorCode::timed_out,
              fmt::format("the broker at {} did not answer in time{}", broker_name_, condition()),
              "check that the broker's process runs and is not stopped",
              {.operation = std::string(operation)});
}

std::string Channel::condition() const {
  ucred peer{};
  socklen_t length = sizeof(peer);
  // 0: in a PID namespace that is not visible from here.
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid <= 0) return {};
  const bool stopped = condition_of(static_cast<std::uint32_t>(peer.pid)) == ProcessCondition::stopped;
  return stopped ? fmt::format(": its process {} is stopped", peer.pid) : std::string();
}

void Channel::send(const core::FrameWriter& frame, std::uint64_t deadline_ns, std::string_view operation,
                   int descriptor) {
  for (;;) {
    switch (send_message(socket_.get(), frame.bytes(), descriptor)) {
      case SendOutcome::sent:
        return;
      case SendOutcome::closed:
        // What the broker said before it closed can still be read; wait() finds that or the end.
        return;
      case SendOutcome::too_many_descriptors:
        throw Error(ErrorCode::out_of_memory, Remedy::fix_call,
                    "too many descriptors of this user are in flight",
                    "raise the limit of open files: ulimit -n", {.operation = std::string(operation)});
      case SendOutcome::full:
        if (!wait_for(socket_.get(), POLLOUT, deadline_ns)) throw_timed_out(operation);
    }
  }
}

Answer Channel::exchange(const core::FrameWriter& frame, std::uint32_t request, std::uint64_t deadline_ns,
                         std::string_view operation, int descriptor) {
  // Before the lock: in a child it may be held by a thread that does not exist there.
  if (in_forked_child())
    throw Error(ErrorCode::invalid_usage,
                fmt::format("process {} was forked from member process {} and uses its connection",
                            ::getpid(), owner_pid_),
                "join in the process that uses the library, or fork before joining",
                {.operation = std::string(operation)});
  {
    std::lock_guard lock(mutex_);
    if (lost_) throw_lost(operation);
    waiting_.emplace(request, Waiting{});
  }
  try {
    send(frame, deadline_ns, operation, descriptor);
    return wait(request, deadline_ns, operation);
  } catch (...) {
    std::lock_guard lock(mutex_);
    waiting_.erase(request);
    throw;
  }
}

Answer Channel::wait(std::uint32_t request, std::uint64_t deadline_ns, std::string_view operation) {
  // A broker answers at once, but for values that are not there yet, whose waits have limits of their own.
  const auto report_ns =
      operation == kGetOperation
          ? 0
          : static_cast<std::uint64_t>(std::chrono::nanoseconds(base::settings().report_after).count());
  const auto began = base::running_ns();
  auto pause = report_ns;
  auto next_report = report_ns == 0 ? deadline_ns : began + pause;
  std::unique_lock lock(mutex_);
  for (;;) {
    auto at = waiting_.find(request);
    if (at->second.answer) {
      auto answer = std::move(*at->second.answer);
      waiting_.erase(at);
      return answer;
    }
    if (lost_) throw_lost(operation);
    const auto now = base::running_ns();
    if (now >= deadline_ns) throw_timed_out(operation);
    if (now >= next_report) {
      base::log(base::LogLevel::warn, "waiting for {} ms: answer to {} from the broker at {}{}",
                (now - began) / 1'000'000, operation, broker_name_, condition());
      next_report = now + (pause *= 2);
    }
    const auto until = std::min(deadline_ns, next_report);
    if (somebody_reads_)
      changed_.wait_for(lock, base::sleep_until(until));
    else
      read_for_all(lock, until);
  }
}

void Channel::read_for_all(std::unique_lock<std::mutex>& lock, std::uint64_t deadline_ns) {
  somebody_reads_ = true;
  lock.unlock();
  FrameBuffer buffer;
  Received received;
  if (wait_for(socket_.get(), POLLIN, deadline_ns)) received = receive_message(socket_.get(), buffer);
  lock.lock();
  somebody_reads_ = false;
  hand_out(lock, std::move(received), buffer);
  // Also the next reader is one of those who wait.
  changed_.notify_all();
}

void Channel::hand_out(std::unique_lock<std::mutex>& lock, Received received, const FrameBuffer& buffer) {
  if (received.outcome == ReceiveOutcome::nothing) return;
  core::FrameView frame;
  const std::span<const std::byte> bytes(buffer.data(), received.bytes);
  // A reply whose descriptor found no room here is for who asked; the broker is well.
  const bool whole =
      received.outcome == ReceiveOutcome::message || received.outcome == ReceiveOutcome::cut_off;
  const auto fault = whole ? core::parse_frame(bytes, frame) : core::FrameFault::too_short;
  if (fault != core::FrameFault::none && fault != core::FrameFault::version) {
    lost_ = true;
    return;
  }
  if (core::Failure failure; frame.request == 0 && core::decode(frame, failure)) {
    // It concerns no single request: the broker says it before it closes.
    parting_ = std::move(failure);
    lost_ = true;
    return;
  }
  const auto at = waiting_.find(frame.request);
  if (at == waiting_.end()) {
    // Whoever asked has given up.
    lock.unlock();
    give_back_late_segment(frame);
    lock.lock();
    return;
  }
  Answer answer;
  answer.bytes.assign(bytes.begin(), bytes.end());
  if (!received.descriptors.empty()) answer.descriptor = std::move(received.descriptors.front());
  at->second.answer = std::move(answer);
}

void Channel::give_back_late_segment(const core::FrameView& frame) noexcept {
  core::SegmentReply late;
  if (!core::decode(frame, late)) return;
  core::FrameWriter release;
  core::encode(core::ReleaseSegment{late.id}, 0, release);
  // Nobody waits for this; if the socket is full or closed, the reference goes with the member.
  send_message(socket_.get(), release.bytes());
}

template <class Reply, class Message>
Reply Channel::call(const Message& message, std::uint64_t deadline_ns, std::string_view operation,
                    int descriptor, base::UniqueFd* received) {
  core::FrameWriter frame;
  const auto request = next_request();
  if (!core::encode(message, request, frame))
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a name or value is too long: names and keys have at most {} bytes, values {}",
                            core::kMaxKeyBytes, core::kMaxValueBytes),
                "use a shorter one; bulk data belongs into a segment", {.operation = std::string(operation)});
  auto answer = exchange(frame, request, deadline_ns, operation, descriptor);
  core::FrameView view;
  core::parse_frame(answer.bytes, view);
  throw_if_failure(view, operation);
  Reply reply;
  if (view.version != core::kFrameVersion || !core::decode(view, reply))
    throw_unexpected(operation, broker_name_);
  if (received != nullptr) *received = std::move(answer.descriptor);
  return reply;
}

template <class Message>
void Channel::post(const Message& message) noexcept {
  core::FrameWriter frame;
  if (core::encode(message, 0, frame)) send_message(socket_.get(), frame.bytes());
}

template void Channel::post<core::ReleaseSegment>(const core::ReleaseSegment&) noexcept;
template void Channel::post<core::Leave>(const core::Leave&) noexcept;

#define TUGLINE_CALL(Reply, Message)                                                                  \
  template core::Reply Channel::call<core::Reply, core::Message>(const core::Message&, std::uint64_t, \
                                                                 std::string_view, int, base::UniqueFd*)
TUGLINE_CALL(Welcome, Hello);
TUGLINE_CALL(SegmentReply, OpenSegment);
TUGLINE_CALL(SegmentReply, DepositSegment);
TUGLINE_CALL(SegmentReply, ImportSegment);
TUGLINE_CALL(Done, ReleaseSegment);
TUGLINE_CALL(Done, KeepSegment);
TUGLINE_CALL(Done, RemoveSegment);
TUGLINE_CALL(Done, PutValue);
TUGLINE_CALL(Value, GetValue);
TUGLINE_CALL(Done, Leave);
TUGLINE_CALL(UsageReport, Usage);
TUGLINE_CALL(Done, AttachLauncher);
TUGLINE_CALL(Welcome, AttachObserver);
#undef TUGLINE_CALL

}  // namespace tugline::broker

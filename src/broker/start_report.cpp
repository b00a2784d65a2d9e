// SPDX-License-Identifier: Apache-2.0
#include "broker/start_report.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <span>
#include <string_view>

#include "broker/seqpacket.h"
#include "core/messages.h"

namespace tugline::broker {
namespace {

/// Written before the program runs. No frame begins with a zero.
struct StageRecord {
  std::uint8_t zero = 0;
  StartStage stage{};
  std::int32_t reason = 0;
};

template <class Message>
void tell(int socket, const Message& message) noexcept {
  core::FrameWriter frame;
  if (!core::encode(message, 0, frame)) return;
  // The starter may be gone, and need not be told then.
  (void)send_message(socket, frame.bytes());
}

[[noreturn]] void fail_at(const StageRecord& record, const std::string& program) {
  ErrorContext context{.operation = record.stage == StartStage::fork ? "fork" : "execve " + program,
                       .native_code = record.reason};
  if (record.stage == StartStage::descriptors) context.operation = "dup";
  const bool descriptors = record.reason == EMFILE || record.reason == ENFILE;
  if (descriptors) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    throw Error(ErrorCode::out_of_memory, Remedy::fix_call,
                fmt::format("no descriptor left to start a broker: {} are allowed", limit.rlim_cur),
                "close descriptors, or raise the limit: ulimit -n", std::move(context));
  }
  if (record.reason == EAGAIN || record.reason == ENOMEM)
    throw Error(ErrorCode::out_of_memory, "no room for the broker's process",
                "raise the limit of processes (ulimit -u), or free memory", std::move(context));
  throw Error(ErrorCode::system, fmt::format("cannot start the broker {}", program),
              "check that it can be executed, or set TUGLINE_BROKER_BIN", std::move(context));
}

/// What is there to read now: at most `most` bytes.
std::string take(int descriptor, std::size_t most) {
  std::string text(most, '\0');
  ssize_t bytes;
  do {
    bytes = ::read(descriptor, text.data(), text.size());
  } while (bytes < 0 && errno == EINTR);
  text.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  return text;
}

[[noreturn]] void fail_silently(const StartChannel& channel, const std::string& program,
                                const std::string& place) {
  constexpr std::size_t kShown = 400;
  std::string said;
  pollfd entry{channel.text.get(), POLLIN, 0};
  if (::poll(&entry, 1, 0) > 0) said = take(channel.text.get(), kShown);
  while (!said.empty() && said.back() == '\n') said.pop_back();
  for (auto& c : said)
    if (c == '\n') c = ' ';  // an error has three lines
  throw Error(ErrorCode::broker_lost, Remedy::fix_call,
              fmt::format("{} ended before it served {}{}", program, place,
                          said.empty() ? ", and said nothing" : ": " + said),
              "check that TUGLINE_BROKER_BIN, if set, is `tugline`; run `tugline broker --job NAME` by hand",
              {.operation = "start a broker"});
}

}  // namespace

void StartReport::serves() noexcept {
  if (!socket_) return;
  // Standard output is /dev/null; who starts a broker reads no more from here on.
  ::dup2(STDOUT_FILENO, STDERR_FILENO);
  tell(socket_.get(), core::Done{});
  socket_.reset();
}

void StartReport::failed(const Error& error) noexcept {
  if (!socket_) return;
  core::Failure failure;
  failure.code = error.code();
  failure.native_code = static_cast<std::int32_t>(error.context().native_code);
  failure.what_failed = error.what_failed().substr(0, core::kMaxFailureBytes);
  failure.what_to_do = error.what_to_do().substr(0, core::kMaxFailureBytes);
  tell(socket_.get(), failure);
  socket_.reset();
}

void report_stage(int socket, StartStage stage, int reason) noexcept {
  const StageRecord record{0, stage, reason};
  // If even this fails the starter sees the end.
  [[maybe_unused]] const auto sent = ::send(socket, &record, sizeof(record), MSG_NOSIGNAL);
}

void wait_until_it_serves(const StartChannel& channel, const std::string& program, const std::string& place,
                          std::uint64_t deadline_ns) {
  if (!wait_for(channel.report.get(), POLLIN, deadline_ns))
    throw Error(ErrorCode::timed_out, fmt::format("{} did not say in time that it serves {}", program, place),
                "check that TUGLINE_BROKER_BIN, if set, is `tugline`, and that the machine is not overloaded",
                {.operation = "start a broker"});
  const auto bytes = take(channel.report.get(), core::kMaxFrameBytes);
  StageRecord record;
  if (bytes.size() == sizeof(record) && bytes[0] == 0) {
    bytes.copy(reinterpret_cast<char*>(&record), sizeof(record));
    fail_at(record, program);
  }
  core::FrameView frame;
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
  if (core::parse_frame({data, bytes.size()}, frame) != core::FrameFault::none)
    fail_silently(channel, program, place);
  core::Failure failure;
  if (core::decode(frame, failure))
    throw Error(failure.code, std::move(failure.what_failed), std::move(failure.what_to_do),
                {.operation = "start a broker", .native_code = failure.native_code});
}

}  // namespace tugline::broker

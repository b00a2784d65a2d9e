// SPDX-License-Identifier: Apache-2.0
#include "broker/client.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "base/settings.h"
#include "base/shared_memory.h"
#include "broker/channel.h"
#include "broker/connect.h"
#include "broker/identity.h"
#include "broker/lifeline.h"
#include "tugline/error.h"

namespace tugline::broker {
namespace {

// A broker answers at once; who waits longer than this waits for a stopped one.
constexpr std::chrono::milliseconds kAnswerDeadline{10'000};

class MemberClient final : public Client {
 public:
  MemberClient(const JoinRequest& request, std::string job, Place place, std::unique_ptr<Channel> channel,
               const core::Welcome& welcome, std::shared_ptr<base::Mapping> control)
      : rank_(request.rank),
        size_(request.size),
        member_(welcome.member),
        job_(std::move(job)),
        place_(std::move(place)),
        channel_(std::move(channel)),
        control_(std::move(control)),
        lifeline_(this->control(), member_, control_, channel_->socket()) {}

  ~MemberClient() override { leave(); }

  MemberId member() const noexcept override { return member_; }
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  const std::string& job() const noexcept override { return job_; }
  const std::string& socket_path() const noexcept override { return place_.socket_path; }
  core::ControlSegment& control() const noexcept override {
    return *static_cast<core::ControlSegment*>(control_->data());
  }

  Segment open_or_create(std::string_view name, std::uint64_t bytes, Lifetime lifetime,
                         SegmentKind kind) override {
    require_name(name, "open_or_create");
    try {
      auto segment = open(name);
      if (segment.bytes == bytes) return segment;
      release(segment.id);
      throw Error(ErrorCode::mismatch,
                  fmt::format("segment \"{}\" has {} bytes, {} are asked", name, segment.bytes, bytes),
                  "use the same size everywhere, or remove the old one", {.rank = rank_});
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_found) throw;
    }
    return deposit(name, bytes, lifetime, kind, Existing::welcome, "open_or_create");
  }

  Segment open(std::string_view name) override {
    require_name(name, "open");
    Segment segment;
    const auto reply =
        ask<core::SegmentReply>(core::OpenSegment{std::string(name)}, base::running_deadline(kAnswerDeadline),
                                "open segment", -1, &segment.descriptor);
    return complete(std::move(segment), reply);
  }

  Segment create(std::string_view name, std::uint64_t bytes, Lifetime lifetime, SegmentKind kind) override {
    return deposit(name, bytes, lifetime, kind, Existing::refused, "create segment");
  }

  Segment import(SegmentId id) override {
    Segment segment;
    const auto reply =
        ask<core::SegmentReply>(core::ImportSegment{id}, base::running_deadline(kAnswerDeadline),
                                "import segment", -1, &segment.descriptor);
    return complete(std::move(segment), reply);
  }

  void keep(SegmentId id) override {
    ask<core::Done>(core::KeepSegment{id}, base::running_deadline(kAnswerDeadline), "keep segment");
  }

  void release(SegmentId id) override {
    ask<core::Done>(core::ReleaseSegment{id}, base::running_deadline(kAnswerDeadline), "release segment");
  }

  void remove(std::string_view name) override {
    require_name(name, "remove");
    ask<core::Done>(core::RemoveSegment{std::string(name)}, base::running_deadline(kAnswerDeadline),
                    "remove segment");
  }

  core::UsageReport usage(MemberId member) override {
    return ask<core::UsageReport>(core::Usage{member}, base::running_deadline(kAnswerDeadline), "usage");
  }

  void put(std::string_view key, std::string_view value) override {
    ask<core::Done>(core::PutValue{std::string(key), std::string(value)},
                    base::running_deadline(kAnswerDeadline), "put value");
  }

  std::string get(std::string_view key, std::chrono::milliseconds deadline) override {
    const auto wait_ms =
        std::clamp<std::int64_t>(deadline.count(), 0, std::numeric_limits<std::uint32_t>::max());
    const auto end = base::running_deadline(std::chrono::milliseconds(wait_ms));
    auto left_ms = wait_ms;
    for (;;) {
      // The broker ends the wait; this side's limit is for a broker that does not.
      const auto limit = base::running_deadline(std::chrono::milliseconds(left_ms) + kAnswerDeadline);
      try {
        return ask<core::Value>(core::GetValue{std::string(key), static_cast<std::uint32_t>(left_ms)}, limit,
                                kGetOperation)
            .value;
      } catch (const Error& error) {
        if (error.code() != ErrorCode::timed_out) throw;
        const auto now = base::running_ns();
        // The broker's clock went on while this process was stopped: that was no waiting.
        if (now + base::RunningClock::kLongestStep < end) {
          left_ms = static_cast<std::int64_t>((end - now) / 1'000'000);
          continue;
        }
        if (left_ms == wait_ms) throw;
        throw Error(error.code(), error.remedy(),
                    fmt::format("{}, the rest of {} ms in which this process was stopped",
                                error.what_failed(), wait_ms),
                    error.what_to_do(), error.context());
      }
    }
  }

  std::optional<std::string> try_get(std::string_view key) override {
    try {
      return get(key, std::chrono::milliseconds(0));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::not_found) return std::nullopt;
      throw;
    }
  }

  void give_back(SegmentId id) noexcept override {
    if (standing() != Standing::member) return;
    try_to_tell(core::ReleaseSegment{id}, "release segment");
  }

  void leave() noexcept override {
    // A forked child has a copy of this object, but is no member.
    if (standing() == Standing::forked) return;
    std::lock_guard lock(leaving_);
    if (standing() == Standing::left) return;
    mark_left();
    lifeline_.stop_and_leave();
    try_to_tell(core::Leave{}, "leave");
  }

 private:
  enum class Existing : std::uint8_t { welcome, refused };

  /// A request on behalf of the member.
  template <class Reply, class Message>
  Reply ask(const Message& message, std::uint64_t deadline_ns, std::string_view operation,
            int descriptor = -1, base::UniqueFd* received = nullptr) {
    require_member(operation);
    return channel_->call<Reply>(message, deadline_ns, operation, descriptor, received);
  }

  /// What the broker also finds out by itself when the socket closes: nobody has to hear that it failed, nor
  /// to wait for it again and again.
  template <class Message>
  void try_to_tell(const Message& message, std::string_view operation) noexcept {
    constexpr std::chrono::milliseconds kGoodByeDeadline{2'000};
    try {
      if (silent_.load(std::memory_order_relaxed)) return channel_->post(message);
      channel_->call<core::Done>(message, base::running_deadline(kGoodByeDeadline), operation);
    } catch (const Error& error) {
      const bool first = error.code() == ErrorCode::timed_out && !silent_.exchange(true);
      base::log(first ? base::LogLevel::warn : base::LogLevel::debug, "rank {} leaves without an answer: {}",
                rank_, error.what_failed());
    }
  }

  void require_name(std::string_view name, const char* operation) const {
    if (!name.empty()) return;
    throw Error(ErrorCode::invalid_argument, "the segment's name is empty", "give it a name",
                {.operation = operation, .rank = rank_});
  }

  Segment deposit(std::string_view name, std::uint64_t bytes, Lifetime lifetime, SegmentKind kind,
                  Existing existing, const char* operation) {
    Segment segment;
    segment.descriptor = base::create_sealed_memfd("tugline-segment", bytes);
    core::DepositSegment message;
    message.name = name;
    message.bytes = bytes;
    message.persistent = lifetime == Lifetime::persistent ? 1 : 0;
    message.kind = kind;
    message.exclusive = existing == Existing::refused ? 1 : 0;
    base::UniqueFd other;
    const auto reply = ask<core::SegmentReply>(message, base::running_deadline(kAnswerDeadline), operation,
                                               segment.descriptor.get(), &other);
    // Somebody was faster: ours goes, without ever having had a page.
    if (reply.created == 0) segment.descriptor = std::move(other);
    return complete(std::move(segment), reply);
  }

  Segment complete(Segment segment, const core::SegmentReply& reply) {
    segment.id = reply.id;
    segment.bytes = reply.bytes;
    segment.created = reply.created != 0;
    try {
      check(segment);
    } catch (const Error&) {
      // The broker has counted the reference.
      release(segment.id);
      throw;
    }
    return segment;
  }

  void check(const Segment& segment) const {
    if (!segment.descriptor)
      throw Error(ErrorCode::out_of_memory, Remedy::fix_call,
                  fmt::format("the descriptor of segment {} did not arrive", segment.id),
                  "raise this process's limit of open files: ulimit -n", {.rank = rank_});
    base::check_sealed(segment.descriptor.get(), segment.bytes);
  }

  int rank_;
  int size_;
  MemberId member_;
  std::string job_;
  Place place_;
  std::unique_ptr<Channel> channel_;
  std::shared_ptr<base::Mapping> control_;
  Lifeline lifeline_;
  std::mutex leaving_;
  std::atomic<bool> silent_{false};  // the broker let a good-bye wait in vain
};

struct Joined {
  std::unique_ptr<Channel> channel;
  core::Welcome welcome;
  base::UniqueFd control;
};

Joined say_hello(const JoinRequest& request, const Place& place, const std::string& job,
                 const std::string& token_hex, std::uint64_t deadline_ns) {
  const auto absent = request.spawn_broker ? WhenAbsent::spawn : WhenAbsent::fail;
  for (;;) {
    auto found = find_broker(place, job, token_hex, absent, deadline_ns);
    core::Hello hello;
    hello.token = token_for(found, place, token_hex);
    hello.rank = request.rank;
    hello.size = request.size;
    hello.job = job;
    const auto pidfd = own_pidfd();
    Joined joined;
    joined.channel = std::make_unique<Channel>(std::move(found.socket), place.socket_path);
    try {
      joined.welcome =
          joined.channel->call<core::Welcome>(hello, deadline_ns, "join", pidfd.get(), &joined.control);
      return joined;
    } catch (const Error& error) {
      // A broker that was just ending, or a crowd of silent connections: there may be a next one.
      if (error.code() != ErrorCode::broker_lost || base::running_ns() >= deadline_ns) throw;
    }
  }
}

std::shared_ptr<base::Mapping> map_control(const Joined& joined) {
  if (!joined.control)
    throw Error(ErrorCode::out_of_memory, Remedy::fix_call, "the control segment's descriptor did not arrive",
                "raise this process's limit of open files: ulimit -n");
  if (joined.welcome.control_bytes != sizeof(core::ControlSegment) ||
      joined.welcome.member >= core::kMaxMembers)
    throw Error(ErrorCode::unsupported,
                fmt::format("the broker's control segment has {} bytes, this build's {}",
                            joined.welcome.control_bytes, sizeof(core::ControlSegment)),
                "use the same tugline for all processes of a job");
  base::check_sealed(joined.control.get(), joined.welcome.control_bytes);
  auto mapping = std::make_shared<base::Mapping>(joined.control.get(), joined.welcome.control_bytes,
                                                 base::Access::read_write);
  const auto& control = *static_cast<const core::ControlSegment*>(mapping->data());
  if (control.magic != core::kControlMagic || control.version != core::kControlVersion)
    throw Error(ErrorCode::unsupported,
                fmt::format("the control segment has version {}, this build {}", control.version,
                            core::kControlVersion),
                "use the same tugline for all processes of a job");
  return mapping;
}

}  // namespace

Client::Client() : forks_(base::fork_count()), owner_pid_(::getpid()) {}

Error Client::not_a_member(ErrorContext context) const {
  context.rank = rank();
  if (standing() == Standing::forked)
    return Error(ErrorCode::invalid_usage,
                 fmt::format("process {} was forked from member process {} and uses its place in the job",
                             ::getpid(), owner_pid_),
                 "join in the process that uses the library, fork before joining, or call exec in the child",
                 std::move(context));
  return Error(ErrorCode::invalid_usage,
               fmt::format("this process has left the job \"{}\", in which it was rank {}", job(), rank()),
               "make this call before leave() and before the Job is destroyed, or join again",
               std::move(context));
}

void Client::throw_not_a_member(std::string_view operation) const {
  throw not_a_member({.operation = std::string(operation)});
}

std::shared_ptr<Client> Client::join(const JoinRequest& request) {
  const auto& settings = base::settings();
  const auto deadline_ns = base::running_deadline(request.deadline);
  auto job = request.job;
  auto socket_path = request.socket_path;
  // The configured socket belongs to the configured job.
  if (socket_path.empty() && (job.empty() || job == settings.job)) socket_path = settings.socket_path;
  if (job.empty()) job = settings.job;
  if (job.empty() && socket_path.empty()) job = "private-" + base::random_hex(8);
  const auto place = place_of(socket_path, job);
  const auto& token_hex = request.token.empty() ? settings.token : request.token;

  auto joined = say_hello(request, place, job, token_hex, deadline_ns);
  if (!joined.welcome.job.empty()) job = joined.welcome.job;
  auto control = map_control(joined);
  return std::make_shared<MemberClient>(request, std::move(job), place, std::move(joined.channel),
                                        joined.welcome, std::move(control));
}

}  // namespace tugline::broker

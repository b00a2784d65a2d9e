// SPDX-License-Identifier: Apache-2.0
#include "broker/server.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "broker/event_tag.h"
#include "tugline/error.h"

namespace tugline::broker {
namespace {

constexpr std::chrono::milliseconds kNoDeadline{60'000};

std::uint64_t to_ns(std::chrono::milliseconds time) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(time).count());
}

int soft_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 64;
  constexpr rlim_t kMost = 1 << 20;
  return static_cast<int>(std::min(limit.rlim_cur, kMost));
}

int open_descriptors() {
  DIR* directory = ::opendir("/proc/self/fd");
  if (directory == nullptr) return 16;  // no /proc: a guess above what a fresh process holds
  int count = 0;
  while (::readdir(directory) != nullptr) ++count;
  ::closedir(directory);
  return count - 3;  // ".", "..", and the directory's own descriptor
}

}  // namespace

Server::Server(ServerOptions options, std::unique_ptr<Endpoint> endpoint)
    : Server(std::move(options), endpoint->token()) {
  endpoint_ = std::move(endpoint);
  watch(endpoint_->listener(), tag_of(EventKind::listener, 0), EPOLLIN);
}

Server::Server(ServerOptions options, const Token& token)
    : options_(std::move(options)),
      token_(token),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      stop_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      reserve_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
      membership_(options_.world_size),
      segments_(options_.limits),
      idle_since_ns_(now()) {
  if (!epoll_ || !stop_event_ || !reserve_)
    throw Error(ErrorCode::out_of_memory, "the broker cannot open its own descriptors",
                "raise the limit: ulimit -n", {.operation = "epoll_create1", .native_code = errno});
  descriptor_limit_ = options_.descriptor_limit > 0 ? options_.descriptor_limit : soft_descriptor_limit();
  standing_descriptors_ = open_descriptors();
  watch(stop_event_.get(), tag_of(EventKind::stop, 0), EPOLLIN);
  owned_ = static_cast<bool>(options_.owner);
  if (owned_) watch(options_.owner.get(), tag_of(EventKind::owner, 0), EPOLLIN);
}

Server::~Server() {
  // First the name, so that nobody comes in any more; then the word, before sockets say the same.
  endpoint_.reset();
  if (membership_.connected() != 0) membership_.declare_broker_lost();
}

void Server::watch(int descriptor, std::uint64_t tag, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0)
    throw Error(ErrorCode::system, "the broker cannot watch a descriptor", "check fs.epoll.max_user_watches",
                {.operation = "epoll_ctl", .native_code = errno});
}

void Server::stop() noexcept {
  stopping_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  // Can only fail when the counter is full, and then the loop wakes as well.
  if (::write(stop_event_.get(), &one, sizeof(one)) < 0) return;
}

void Server::run() {
  while (run_once(kNoDeadline)) {
  }
}

bool Server::run_once(std::chrono::milliseconds timeout) {
  const auto wait = std::min(timeout, time_to_next_deadline());
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                 static_cast<int>(wait.count()));
  if (count < 0 && errno != EINTR)
    throw Error(ErrorCode::system, "the broker cannot wait for events", "report this",
                {.operation = "epoll_wait", .native_code = errno});
  for (int i = 0; i < count; ++i) {
    const auto tag = events[static_cast<std::size_t>(i)].data.u64;
    const auto flags = events[static_cast<std::size_t>(i)].events;
    switch (kind_of(tag)) {
      case EventKind::listener:
        accept_all();
        break;
      case EventKind::connection:
        if (auto* connection = find(number_of(tag)); connection != nullptr && (flags & EPOLLOUT) != 0)
          flush(*connection);
        if ((flags & ~EPOLLOUT) != 0) read_from(number_of(tag));
        break;
      case EventKind::member_process:
        member_process_ended(number_of(tag));
        break;
      case EventKind::owner:
        // Its end is looked at below; once it has come there is nothing to watch.
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, options_.owner.get(), nullptr);
        options_.owner.reset();
        idle_since_ns_ = now();
        break;
      case EventKind::stop:
        break;
    }
  }
  handle_deadlines();
  publish_statistics();
  if (is_time_to_end(now())) end();
  return !ending_ && !stopping_.load(std::memory_order_acquire);
}

void Server::end() {
  ending_ = true;
  endpoint_.reset();
}

std::optional<std::uint64_t> Server::end_deadline_ns() const {
  if (options_.ending != Ending::with_last_member || membership_.connected() != 0 || options_.owner)
    return std::nullopt;
  // Its launcher has gone, and the ranks with it: nobody can come.
  if (owned_) return idle_since_ns_;
  if (!had_members_) return idle_since_ns_ + to_ns(options_.first_member_within);
  if (!membership_.last_one_left() && segments_.holds_persistent())
    return idle_since_ns_ + to_ns(options_.successor_within);
  // Over once its last generation is.
  return generation_deadline_ns().value_or(idle_since_ns_);
}

std::optional<std::uint64_t> Server::generation_deadline_ns() const {
  if (membership_.connected() != 0 || !membership_.in_generation()) return std::nullopt;
  // A rank that was quick must not take the values with it that a slow one will ask for.
  if (!membership_.all_ranks_have_joined()) return idle_since_ns_ + to_ns(options_.absent_ranks_within);
  return idle_since_ns_;
}

bool Server::is_time_to_end(std::uint64_t now_ns) {
  const auto deadline = end_deadline_ns();
  return deadline && now_ns >= *deadline;
}

std::chrono::milliseconds Server::time_to_next_deadline() {
  auto next = end_deadline_ns();
  const auto sooner = [&next](std::uint64_t time_ns) { next = next ? std::min(*next, time_ns) : time_ns; };
  if (const auto deadline = generation_deadline_ns()) sooner(*deadline);
  if (const auto deadline = values_.next_deadline_ns()) sooner(*deadline);
  if (!half_open_.empty()) sooner(connections_.at(half_open_.front()).first_frame_by_ns);
  if (!next) return kNoDeadline;
  const auto time = now();
  const auto left_ns = *next > time ? std::min(*next - time, base::RunningClock::kLongestSleep) : 0;
  // Rounded up: waking early would only mean waking twice.
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::nanoseconds(left_ns));
}

void Server::handle_deadlines() {
  const auto time = now();
  while (!half_open_.empty() && connections_.at(half_open_.front()).first_frame_by_ns <= time) {
    ++statistics_.refused;
    close_connection(half_open_.front(), core::LossCause::socket);
  }
  for (auto& waiter : values_.expired(time)) {
    auto* connection = find(waiter.connection);
    if (connection == nullptr) continue;
    const auto absent = membership_.describe_absent();
    reply_failure(*connection, waiter.request,
                  Error(ErrorCode::timed_out,
                        fmt::format("nobody put \"{}\" within {} ms{}{}", waiter.key, waiter.wait_ms,
                                    absent.empty() ? "" : "; ", absent),
                        "check that the rank that puts it has come so far"));
  }
  if (const auto deadline = generation_deadline_ns(); deadline && *deadline <= time) end_generation();
}

void Server::end_generation() {
  values_.clear();
  segments_.drop_all_members();
  membership_.end_generation();
}

bool Server::descriptors_left(int wanted) noexcept {
  if (descriptors_used() + wanted <= descriptor_limit_) return true;
  membership_.close_lingering_pidfds();
  return descriptors_used() + wanted <= descriptor_limit_;
}

int Server::descriptors_used() const noexcept {
  constexpr int kControlAndOneBeingReceived = 2;
  return standing_descriptors_ + kControlAndOneBeingReceived + static_cast<int>(connections_.size()) +
         static_cast<int>(membership_.pidfds()) + static_cast<int>(segments_.count());
}

void Server::publish_statistics() noexcept {
  statistics_.connections.store(connections_.size(), std::memory_order_relaxed);
  statistics_.members.store(membership_.connected(), std::memory_order_relaxed);
  statistics_.segments.store(segments_.count(), std::memory_order_relaxed);
  statistics_.waiting_gets.store(values_.waiting(), std::memory_order_relaxed);
}

}  // namespace tugline::broker

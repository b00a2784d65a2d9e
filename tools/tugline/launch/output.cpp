// SPDX-License-Identifier: Apache-2.0
#include "launch/output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <climits>
#include <utility>

namespace tugline::cli {

Sink::Sink(int descriptor) : descriptor_(descriptor), step_bytes_(PIPE_BUF) {
  struct stat info {};
  // A regular file is always ready; a pipe that polls writable takes PIPE_BUF bytes without blocking.
  if (::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode)) step_bytes_ = kHighWater;
}

void Sink::write_up_to(std::size_t limit) noexcept {
  auto written = ::write(descriptor_, pending_.data() + done_, std::min(limit, pending_.size() - done_));
  if (written >= 0) {
    done_ += static_cast<std::size_t>(written);
  } else if (errno != EINTR && errno != EAGAIN) {
    error_ = errno;
  }
  if (error_ != 0 || done_ == pending_.size()) {
    pending_.clear();
    done_ = 0;
  } else if (done_ >= kHighWater) {
    pending_.erase(0, done_);
    done_ = 0;
  }
}

void Sink::look_for_reader() noexcept {
  pollfd state{descriptor_, POLLOUT, 0};
  if (error_ == 0 && ::poll(&state, 1, 0) > 0 && (state.revents & (POLLERR | POLLHUP)) != 0) error_ = EPIPE;
}

void Sink::write_some() noexcept {
  if (has_pending()) write_up_to(step_bytes_);
}

void Sink::write_all() noexcept {
  while (has_pending()) write_up_to(pending_.size());
}

LineSource::LineSource(base::UniqueFd descriptor, std::string prefix, Sink& sink)
    : descriptor_(std::move(descriptor)), prefix_(std::move(prefix)), sink_(&sink) {
  ::fcntl(descriptor_.get(), F_SETFL, O_NONBLOCK);
}

void LineSource::emit(std::string_view line) {
  sink_->add(prefix_);
  sink_->add(line);
}

bool LineSource::read_some() {
  if (ended()) return false;
  std::array<char, 64 << 10> block;
  auto got = ::read(descriptor_.get(), block.data(), block.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) {
    if (!partial_.empty()) emit(partial_ + "\n");
    partial_.clear();
    descriptor_.reset();
    return false;
  }
  std::string_view text(block.data(), static_cast<std::size_t>(got));
  while (!text.empty()) {
    auto newline = text.find('\n');
    if (newline == std::string_view::npos) {
      partial_ += text;
      if (partial_.size() >= kLongestLine) {
        emit(partial_ + "\n");
        partial_.clear();
      }
      break;
    }
    partial_ += text.substr(0, newline + 1);
    emit(partial_);
    partial_.clear();
    text.remove_prefix(newline + 1);
  }
  return true;
}

}  // namespace tugline::cli

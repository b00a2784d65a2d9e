// SPDX-License-Identifier: Apache-2.0
#include "comm/channel.h"

#include <algorithm>

namespace tugline::comm {

Channel::Channel(const Bank& bank, std::uint32_t self, std::uint32_t peer, std::uint64_t before) noexcept
    : bank_(&bank),
      self_(self),
      peer_(peer),
      half_(static_cast<std::uint32_t>(message_buffers(bank.layout().pair_bytes))),
      buffer_bytes_(bank.layout().pair_bytes / half_ / kLine * kLine),
      sent_(before),
      known_done_(before),
      received_(before) {
  // The lower rank's come first.
  const std::uint32_t first = self < peer ? 0 : half_;
  for (; held_ < half_; ++held_) buffers_[held_] = static_cast<std::uint8_t>(first + half_ - 1 - held_);
}

std::byte* Channel::buffer(std::uint32_t number) const noexcept {
  const auto lower = std::min(self_, peer_);
  const auto upper = std::max(self_, peer_);
  return number < half_ ? bank_->message_buffers(lower, upper) + number * buffer_bytes_
                        : bank_->message_buffers(upper, lower) + (number - half_) * buffer_bytes_;
}

void Channel::look_at_receipt() noexcept {
  const auto& receipt = outward().receipt;
  known_done_ = receipt.cells.load(std::memory_order_acquire);
  known_read_ = receipt.buffers.load(std::memory_order_relaxed);
}

bool Channel::has_room() noexcept {
  if (sent_ - known_done_ < kMessageCells) return true;
  look_at_receipt();
  return sent_ - known_done_ < kMessageCells;
}

bool Channel::is_done(std::uint64_t cell) noexcept {
  if (static_cast<std::int64_t>(known_done_ - cell) >= 0) return true;
  look_at_receipt();
  return static_cast<std::int64_t>(known_done_ - cell) >= 0;
}

void Channel::collect_returns() noexcept {
  auto& lines = outward();
  const auto returned = lines.receipt.returned.load(std::memory_order_acquire);
  for (; got_back_ != returned; ++got_back_)
    buffers_[held_++] =
        static_cast<std::uint8_t>(lines.returns[got_back_ % kMostBuffers].load(std::memory_order_relaxed));
}

std::optional<std::uint32_t> Channel::take_buffer() noexcept {
  if (held_ == 0) collect_returns();
  if (held_ == 0) return std::nullopt;
  return buffers_[--held_];
}

void Channel::share_buffers() noexcept {
  const auto share = [this] { return held_ + (sent_buffers_ - known_read_); };
  const std::uint64_t eighth = half_ / 4;
  const std::uint64_t most = 7 * eighth;
  if (share() <= most - eighth) return;
  look_at_receipt();
  collect_returns();
  if (share() <= most) return;
  auto& lines = inward();
  lines.returns[given_back_ % kMostBuffers].store(buffers_[--held_], std::memory_order_relaxed);
  lines.receipt.returned.store(++given_back_, std::memory_order_release);
}

void Channel::received(std::optional<std::uint32_t> buffer) noexcept {
  auto& lines = inward();
  ++received_;
  if (buffer) {
    buffers_[held_++] = static_cast<std::uint8_t>(*buffer);
    lines.receipt.buffers.store(++received_buffers_, std::memory_order_relaxed);
    share_buffers();
  }
  lines.receipt.cells.store(received_, std::memory_order_release);
}

}  // namespace tugline::comm

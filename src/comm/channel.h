// SPDX-License-Identifier: Apache-2.0
// What two ranks pass each other messages by: cells and buffers.
//
// Messages from one rank to another are a row of cells, each a cache line. A cell holds a short message, or
// names the buffer that holds a chunk of a longer one. Cells are numbered; number c lies at c mod
// kMessageCells, and is written when the receiver is done with the one before it at that place.
//
// Buffers change hands. Two ranks have them together, each one half to begin with. A sender fills a buffer
// that it has, and with the cell the buffer is the receiver's, who sends its own next chunk in it. So a core
// writes lines that it has just fetched, and nobody waits for leave to write.
//
// Where more goes one way than the other, buffers pile up at one side. A rank's share is what it holds, what
// it has sent and was not read yet, and what was given back to it. A receiver whose share has become more
// than seven eighths of all gives one back, so that each has an eighth at least: a sender that has no buffer
// has chunks on their way, which the receiver's next recv reads, and only calls that do not match can wait
// for each other for ever. To know its share, a receiver must read what the other one writes. It need not as
// long as it knows of six eighths at most: what was given back to it and it has not seen is never more than
// one, for the other one's share was more than seven when it gave the last one back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "comm/bank.h"
#include "comm/layout.h"

namespace tugline::comm {

/// One rank's side of its messages with one peer. Not thread-safe.
class Channel {
 public:
  /// `bank` outlives this. `before`: as if so many cells had gone either way, for tests of large numbers.
  Channel(const Bank& bank, std::uint32_t self, std::uint32_t peer, std::uint64_t before = 0) noexcept;

  // Sending.
  /// Whether the next cell may be written.
  bool has_room() noexcept;
  MessageCell& next_out() const noexcept { return outward().cells[(sent_ + 1) % kMessageCells]; }
  std::uint64_t next_out_number() const noexcept { return sent_ + 1; }
  /// A buffer to fill; the one that was read last, if any. None: all that this rank may have are on their
  /// way.
  std::optional<std::uint32_t> take_buffer() noexcept;
  /// The next cell has been written, with a buffer or not.
  void sent(bool with_buffer) noexcept {
    ++sent_;
    sent_buffers_ += with_buffer ? 1 : 0;
  }
  /// Whether the receiver is done with that cell.
  bool is_done(std::uint64_t cell) noexcept;

  // Receiving.
  MessageCell& next_in() const noexcept { return inward().cells[(received_ + 1) % kMessageCells]; }
  std::uint64_t next_in_number() const noexcept { return received_ + 1; }
  /// This rank is done with the next cell, and with what was in the buffer that it named.
  void received(std::optional<std::uint32_t> buffer) noexcept;

  std::byte* buffer(std::uint32_t number) const noexcept;
  std::uint64_t buffer_bytes() const noexcept { return buffer_bytes_; }
  MessageLines& outward() const noexcept { return bank_->messages(self_, peer_); }
  MessageLines& inward() const noexcept { return bank_->messages(peer_, self_); }

  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;

 private:
  void look_at_receipt() noexcept;
  void collect_returns() noexcept;
  void share_buffers() noexcept;

  const Bank* bank_;
  std::uint32_t self_;
  std::uint32_t peer_;
  std::uint32_t half_;  ///< buffers that each side begins with
  std::uint64_t buffer_bytes_;
  std::uint64_t sent_ = 0, sent_buffers_ = 0;      ///< cells; with a buffer
  std::uint64_t known_done_ = 0, known_read_ = 0;  ///< of these, as the receipt said when last looked at
  std::uint64_t received_ = 0, received_buffers_ = 0;
  std::uint64_t given_back_ = 0, got_back_ = 0;
  std::uint32_t held_ = 0;
  std::array<std::uint8_t, kMostBuffers> buffers_{};  ///< a stack: the last one was read last
};

}  // namespace tugline::comm

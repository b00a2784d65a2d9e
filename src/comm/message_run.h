// SPDX-License-Identifier: Apache-2.0
// One side of a message: the plans "point_to_point" and "direct" of send_recv, through a channel.
//
// Up to kCellBytes travel in the cell that announces the message. More are cut into chunks, each in a buffer
// of the channel; the sender ends when its last chunk is published, not when it is read. Long messages out of
// a buffer that the receiver can reach stay there: the receiver reads them, and the sender waits for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "comm/call.h"
#include "comm/channel.h"
#include "comm/direct.h"
#include "comm/kernels_host/reduce.h"
#include "comm/run.h"

namespace tugline::comm {

/// How a message's receiver reaches the sender's buffer; of a sender, whether and where it lies.
struct MessageReach {
  Offer::Reach reach = Offer::Reach::none;
  memory::Window window;
  std::uint64_t process = 0;  ///< this one's identity
  memory::ImportCache* imports = nullptr;
  /// False once the process of the peer can store nothing more.
  std::function<bool(std::uint32_t)> may_store;
};

/// Messages of fewer bytes are copied through buffers: the sender need not wait for its receiver.
inline constexpr std::uint64_t kDirectMessageBytes = 32 << 10;

class MessageRun final : public Run {
 public:
  /// `epoch`, `board` and `call` outlive this.
  MessageRun(Epoch& epoch, Board& board, const Call& call, MessageReach reach);
  /// Once it has ended, well or not, the receiver does not read the sender's buffer. Waits for that after an
  /// error.
  ~MessageRun() override;

  /// One chunk, if that can be.
  Poll advance() override;
  void look_for_mismatch() override {}  // a receiver compares before it reads
  WaitSubject subject() const override;
  Pending pending() const noexcept override { return {0, call_.root}; }
  bool is_direct() const noexcept override { return direct_; }

 private:
  std::uint32_t peer() const noexcept { return static_cast<std::uint32_t>(call_.root); }
  Poll advance_sender();
  Poll advance_receiver();
  void announce(MessageCell::Form form, bool now);
  void offer_buffer();
  bool take_announcement(const MessageCell& cell);
  bool map(const MessageCell& cell);
  void decline(const Error& error);
  Poll read_directly();
  void deliver(const std::byte* from, std::uint64_t bytes) noexcept;
  Poll end_receiving() noexcept;
  void wake() const noexcept;

  Epoch& epoch_;
  Board& board_;
  Channel& channel_;
  const Call& call_;
  MessageReach reach_;
  const std::uint64_t bytes_;
  const std::uint64_t chunk_;
  const std::uint32_t fingerprint_;
  StreamKernel stream_ = nullptr;  ///< for messages that are too large for the receiver's caches
  std::uint64_t at_ = 0;           ///< bytes that have been sent or received
  bool begun_ = false;             ///< it has its number
  bool announced_ = false;         ///< the first cell was written, or seen
  bool done_ = false;
  bool direct_ = false;
  bool owner_gone_ = false;            ///< the sender's buffer is no longer there
  std::uint64_t direct_cell_ = 0;      ///< number of the cell that offers the sender's buffer
  memory::ImportLease lease_;          ///< of the sender's buffer
  const std::byte* source_ = nullptr;  ///< that buffer as it is mapped here
};

}  // namespace tugline::comm

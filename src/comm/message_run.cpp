// SPDX-License-Identifier: Apache-2.0
#include "comm/message_run.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/settings.h"
#include "comm/kernels_host/stream.h"
#include "comm/protocol.h"
#include "comm/visit.h"
#include "core/plan/pipeline.h"

namespace tugline::comm {
namespace {

/// Read from the sender's buffer at a time: others of a group have their turn, and who withdraws a buffer
/// waits for no more.
constexpr std::uint64_t kDirectPieceBytes = 1 << 20;

std::uint64_t word_of(const void* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address);
}

}  // namespace

MessageRun::MessageRun(Epoch& epoch, Board& board, const Call& call, MessageReach reach)
    : Run(describe(call)),
      epoch_(epoch),
      board_(board),
      channel_(epoch.channels[static_cast<std::uint32_t>(call.root)]),
      call_(call),
      reach_(std::move(reach)),
      bytes_(call.bytes()),
      chunk_(core::message_chunk(bytes_, channel_.buffer_bytes())),
      fingerprint_(comm::fingerprint(descriptor_)) {
  if (!call.is_send() && bytes_ >= stream_from_bytes()) stream_ = stream_kernel();
}

MessageRun::~MessageRun() {
  if (direct_cell_ == 0 || done_ || !call_.is_send()) return;
  auto& lines = channel_.outward();
  withdraw_buffer(lines.withdrawal.withdrawn, lines.receipt.visiting, direct_cell_,
                  {static_cast<const void*>(call_.send), epoch_.rank, peer()}, reach_.may_store);
}

Poll MessageRun::advance() {
  if (done_) return Poll::done;
  if (!begun_) {
    begun_ = true;
    sequence_ = call_.is_send() ? ++channel_.messages_sent : ++channel_.messages_received;
  }
  return call_.is_send() ? advance_sender() : advance_receiver();
}

Poll MessageRun::advance_sender() {
  if (direct_cell_ != 0) {
    if (!channel_.is_done(direct_cell_)) return Poll::blocked;
    take_back_buffers(buffers_of(call_));
    const auto declined = channel_.outward().receipt.declined.load(std::memory_order_relaxed) == direct_cell_;
    direct_cell_ = 0;
    if (!declined) {
      done_ = true;
      return Poll::done;
    }
    direct_ = false;
    reach_.reach = Offer::Reach::none;
  }
  // A bank goes with its last reference: nobody leaves something in it for a rank that has not mapped it yet,
  // and leaves.
  if (sequence_ == 1 && epoch_.bank.progress(peer()).present.load(std::memory_order_acquire) == 0)
    return Poll::blocked;
  if (!channel_.has_room()) return Poll::blocked;
  auto& cell = channel_.next_out();
  if (reach_.reach != Offer::Reach::none) {
    offer_buffer();
    return Poll::progressed;
  }
  if (bytes_ <= kCellBytes) {
    std::uint64_t words[kCellBytes / 8] = {};
    if (bytes_ != 0) std::memcpy(words, call_.send, bytes_);
    for (std::size_t i = 0; i * 8 < bytes_; ++i) cell.words[i].store(words[i], std::memory_order_relaxed);
    announce(MessageCell::Form::in_cell, true);
    done_ = true;
    return Poll::done;
  }
  const auto buffer = channel_.take_buffer();
  if (!buffer) return Poll::blocked;
  const std::uint64_t bytes = std::min(chunk_, bytes_ - at_);
  std::memcpy(channel_.buffer(*buffer), static_cast<const std::byte*>(call_.send) + at_, bytes);
  at_ += bytes;
  cell.words[0].store(*buffer, std::memory_order_relaxed);
  announce(MessageCell::Form::in_buffer, false);
  done_ = at_ == bytes_;
  return done_ ? Poll::done : Poll::progressed;
}

void MessageRun::offer_buffer() {
  auto& cell = channel_.next_out();
  const bool by_segment = reach_.reach == Offer::Reach::everyone;
  cell.words[0].store(by_segment ? reach_.window.segment : 0, std::memory_order_relaxed);
  cell.words[1].store(by_segment ? reach_.window.offset : 0, std::memory_order_relaxed);
  cell.words[2].store(reach_.process, std::memory_order_relaxed);
  cell.words[3].store(word_of(call_.send), std::memory_order_relaxed);
  offer_buffers(buffers_of(call_));
  direct_ = true;
  direct_cell_ = channel_.next_out_number();
  announce(MessageCell::Form::direct, true);
}

// `now`: the flag leaves the store buffer at once, which is worth it where nothing large is in front of it.
void MessageRun::announce(MessageCell::Form form, bool now) {
  auto& cell = channel_.next_out();
  cell.kind.store(descriptor_.kind, std::memory_order_relaxed);
  cell.count.store(descriptor_.count, std::memory_order_relaxed);
  cell.form.store(static_cast<std::uint64_t>(form), std::memory_order_relaxed);
  const auto flag = packet_flag(channel_.next_out_number(), fingerprint_);
  if (now)
    cell.flag.exchange(flag, std::memory_order_release);
  else
    cell.flag.store(flag, std::memory_order_release);
  channel_.sent(form == MessageCell::Form::in_buffer);
  announced_ = true;
  wake();
}

Poll MessageRun::advance_receiver() {
  if (has_failed() || owner_gone_) return Poll::blocked;
  if (source_ != nullptr) return read_directly();
  const auto& cell = channel_.next_in();
  const auto flag = cell.flag.load(std::memory_order_acquire);
  if (flag >> 32 != (channel_.next_in_number() & 0xffffffffu)) return Poll::blocked;
  if (!announced_ && !take_announcement(cell)) return Poll::blocked;
  switch (static_cast<MessageCell::Form>(cell.form.load(std::memory_order_relaxed))) {
    case MessageCell::Form::in_cell: {
      std::uint64_t words[kCellBytes / 8];
      const auto bytes = std::min(bytes_ - at_, kCellBytes);
      for (std::size_t i = 0; i * 8 < bytes; ++i) words[i] = cell.words[i].load(std::memory_order_relaxed);
      if (bytes != 0) std::memcpy(static_cast<std::byte*>(call_.recv) + at_, words, bytes);
      at_ += bytes;
      channel_.received(std::nullopt);
      break;
    }
    case MessageCell::Form::in_buffer: {
      const auto buffer = static_cast<std::uint32_t>(cell.words[0].load(std::memory_order_relaxed));
      deliver(channel_.buffer(buffer), std::min(chunk_, bytes_ - at_));
      channel_.received(buffer);
      break;
    }
    case MessageCell::Form::direct:
      return map(cell) ? Poll::progressed : Poll::blocked;
  }
  wake();
  return at_ == bytes_ ? end_receiving() : Poll::progressed;
}

// Data of a peer is used only after its call was seen to be equal.
bool MessageRun::take_announcement(const MessageCell& cell) {
  const auto flag = cell.flag.load(std::memory_order_relaxed);
  if (flag != packet_flag(channel_.next_in_number(), fingerprint_) && base::settings().check) {
    const Descriptor theirs{cell.kind.load(std::memory_order_relaxed),
                            cell.count.load(std::memory_order_relaxed)};
    difference_ = CallDifference{call_.root, sequence_, descriptor_, theirs};
    return false;
  }
  announced_ = true;
  return true;
}

bool MessageRun::map(const MessageCell& cell) {
  const auto word = [&](std::size_t i) { return cell.words[i].load(std::memory_order_relaxed); };
  direct_ = true;
  direct_cell_ = channel_.next_in_number();
  if (word(2) == reach_.process) {
    source_ = reinterpret_cast<const std::byte*>(word(3));
  } else {
    try {
      lease_ = reach_.imports->map(word(0));
      source_ = lease_.data() + word(1);
    } catch (const Error& error) {
      // A segment goes with its owner, who is in this operation: the wait will be told of the death, which is
      // what there is to say. The same for the broker's end.
      owner_gone_ = error.code() == ErrorCode::not_found || error.code() == ErrorCode::broker_lost;
      if (owner_gone_) return false;
      decline(error);
    }
  }
  return true;
}

// The message comes through buffers after all.
void MessageRun::decline(const Error& error) {
  static std::atomic<bool> said{false};
  if (!said.exchange(true, std::memory_order_relaxed))
    base::log(base::LogLevel::warn,
              "a message is copied through buffers, for its sender's cannot be mapped: {}; said once",
              error.what_failed());
  channel_.inward().receipt.declined.store(direct_cell_, std::memory_order_relaxed);
  direct_ = false;
  direct_cell_ = 0;
  channel_.received(std::nullopt);
  wake();
}

Poll MessageRun::read_directly() {
  auto& lines = channel_.inward();
  const auto* from = source_ + at_;
  {
    const Visit visit(lines.receipt.visiting, lines.withdrawal.withdrawn, direct_cell_, source_);
    if (!visit) {
      owner_gone_ = true;
      return Poll::blocked;
    }
    deliver(from, std::min(kDirectPieceBytes, bytes_ - at_));
  }
  if (at_ != bytes_) return Poll::progressed;
  channel_.received(std::nullopt);
  wake();
  return end_receiving();
}

void MessageRun::deliver(const std::byte* from, std::uint64_t bytes) noexcept {
  auto* to = static_cast<std::byte*>(call_.recv) + at_;
  if (stream_ != nullptr)
    stream_(to, from, bytes);
  else if (to != from)
    std::memcpy(to, from, bytes);
  at_ += bytes;
}

Poll MessageRun::end_receiving() noexcept {
  if (stream_ != nullptr) stream_fence();
  done_ = true;
  return Poll::done;
}

void MessageRun::wake() const noexcept {
  if (anybody_sleeps(epoch_.bank.header().sleepers)) ring(board_.doorbells[epoch_.originals[peer()]]);
}

WaitSubject MessageRun::subject() const {
  WaitSubject about;
  about.peer = call_.root;
  about.sequence = sequence_;
  about.call = descriptor_;
  about.message = call_.is_send() ? 1 : -1;
  if (!call_.is_send()) {
    const bool is_there = source_ != nullptr || owner_gone_;
    about.what = is_there ? "word of the owner of a buffer that is no longer there" : "message";
    about.expected = packet_flag(channel_.next_in_number(), fingerprint_);
    about.seen = &channel_.next_in().flag;
  } else if (sequence_ == 1 && !announced_) {
    about.what = "arrival in this epoch";
    about.expected = 1;
  } else {
    about.what = direct_ ? "receipt" : "leave to send more";
    about.expected = direct_ ? direct_cell_ : channel_.next_out_number() - kMessageCells;
    about.seen = &channel_.outward().receipt.cells;
  }
  return about;
}

}  // namespace tugline::comm

// SPDX-License-Identifier: Apache-2.0
// A mapped bank: typed access to the areas of layout.h.
#pragma once

#include "base/shared_memory.h"
#include "comm/layout.h"

namespace tugline::comm {

/// Owner of one mapping of one bank. Accessors are plain address arithmetic.
class Bank {
 public:
  Bank(base::Mapping mapping, const BankLayout& layout) noexcept
      : mapping_(std::move(mapping)), layout_(layout), base_(static_cast<std::byte*>(mapping_.data())) {}

  const BankLayout& layout() const noexcept { return layout_; }
  std::uint32_t ranks() const noexcept { return layout_.ranks; }

  BankHeader& header() const noexcept { return *at<BankHeader>(layout_.header); }
  ProgressLine& progress(std::uint32_t rank) const noexcept {
    return at<ProgressLine>(layout_.progress)[rank];
  }
  WithdrawalLine& withdrawal(std::uint32_t rank) const noexcept {
    return at<WithdrawalLine>(layout_.withdrawals)[rank];
  }
  DescriptorLine& descriptor(std::uint32_t rank, std::uint64_t sequence) const noexcept {
    return at<DescriptorLine>(layout_.descriptors)[(sequence % kHistory) * layout_.ranks + rank];
  }
  OfferLine& offer(std::uint32_t rank, std::uint64_t sequence) const noexcept {
    return at<OfferLine>(layout_.offers)[(sequence % kHistory) * layout_.ranks + rank];
  }
  PacketLine& packet(std::uint32_t rank, std::uint64_t sequence) const noexcept {
    return at<PacketLine>(layout_.packets)[(sequence % kHistory) * layout_.ranks + rank];
  }
  /// Flags that `source` raises at `destination`.
  FlagLine& flags(std::uint32_t destination, std::uint32_t source) const noexcept {
    return at<FlagLine>(layout_.flags)[destination * layout_.ranks + source];
  }
  MessageLines& messages(std::uint32_t sender, std::uint32_t receiver) const noexcept {
    return at<MessageLines>(layout_.messages)[pair_index(sender, receiver)];
  }
  /// Counts that a rank's call has, three for each rank: see publish_counts().
  std::atomic<std::uint64_t>* counts(std::uint32_t rank, std::uint64_t sequence) const noexcept {
    return at<std::atomic<std::uint64_t>>(layout_.counts) +
           ((sequence % kHalves) * layout_.ranks + rank) * 3 * layout_.ranks;
  }
  std::byte* scratch(std::uint32_t rank) const noexcept {
    return base_ + layout_.scratch + rank * layout_.rank_bytes;
  }
  std::byte* long_packet(std::uint32_t rank, std::uint64_t sequence) const noexcept {
    return scratch(rank) + layout_.scratch_bytes + (sequence % kHistory) * layout_.packet_bytes;
  }
  /// Buffers of messages, to begin with those from `sender` to `receiver`.
  std::byte* message_buffers(std::uint32_t sender, std::uint32_t receiver) const noexcept {
    return base_ + layout_.pairs + pair_index(sender, receiver) * layout_.pair_bytes;
  }
  std::byte* base() const noexcept { return base_; }

 private:
  template <class T>
  T* at(std::uint64_t offset) const noexcept {
    return reinterpret_cast<T*>(base_ + offset);
  }
  std::uint64_t pair_index(std::uint32_t sender, std::uint32_t receiver) const noexcept {
    return std::uint64_t{sender} * layout_.ranks + receiver;
  }

  base::Mapping mapping_;
  BankLayout layout_;
  std::byte* base_;
};

}  // namespace tugline::comm

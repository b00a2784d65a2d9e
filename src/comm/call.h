// SPDX-License-Identifier: Apache-2.0
// One call of a user, checked and described.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "comm/layout.h"
#include "core/plan/plan.h"
#include "tugline/types.h"

namespace tugline::comm {

/// Arguments of one collective or message.
struct Call {
  core::Collective collective = core::Collective::barrier;
  const void* send = nullptr;  ///< null in a pure receive
  void* recv = nullptr;        ///< null in a pure send
  std::size_t count = 0;
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  std::int32_t root = 0;  ///< of a rooted collective; send_recv: the peer
  enum class Direction : std::uint8_t { none, send, receive };
  Direction direction = Direction::none;  ///< of a message
  std::uint64_t generation = 0;           ///< epoch the call was made in

  bool is_message() const noexcept { return collective == core::Collective::send_recv; }
  bool is_send() const noexcept { return direction == Direction::send; }
  bool reduces() const noexcept { return core::reduces(collective); }
  bool has_root() const noexcept { return core::has_root(collective); }
  /// Whether this rank passes an input, and takes an output.
  bool needs_send(std::uint32_t rank) const noexcept;
  bool needs_recv(std::uint32_t rank) const noexcept;
  /// core::Plan::bytes of this call.
  std::uint64_t bytes() const noexcept { return static_cast<std::uint64_t>(count) * size_of(type); }
  std::uint64_t input_bytes(std::uint32_t ranks) const noexcept;
  std::uint64_t output_bytes(std::uint32_t ranks) const noexcept;
  /// True when the buffers overlap as the collective's in-place form says; false where a rank has one only.
  bool in_place(std::uint32_t rank) const noexcept;
};

/// Stands for agreement number `agreement` where ranks made different calls. `generations_up`: 0 of the
/// communicator itself, 1 of its parent and so on, kOfDescendant of one that was split from it.
inline constexpr std::uint32_t kOfDescendant = 0xffffffff;
constexpr Descriptor describe_agreement(std::uint64_t agreement, std::uint32_t generations_up = 0) noexcept {
  return {0xff | std::uint64_t{generations_up} << 32, agreement};
}
constexpr bool is_agreement(const Descriptor& descriptor) noexcept {
  return (descriptor.kind & 0xff) == 0xff;
}

/// What must be equal on all ranks.
Descriptor describe(const Call& call) noexcept;
/// 32 bits of it, to travel in packet flags.
inline std::uint32_t fingerprint(const Descriptor& descriptor) noexcept {
  std::uint64_t mixed =
      descriptor.kind * 0x9e3779b97f4a7c15u ^ (descriptor.count + 0x632be59bd9b4e019u) * 0xd6e8feb86659fd93u;
  return static_cast<std::uint32_t>((mixed ^ mixed >> 32) & 0xffffffffu);
}
/// "all_reduce(count 8, f32, sum)", for messages.
std::string to_text(const Descriptor& descriptor);

/// Throws Error{invalid_argument} for null or partly overlapping buffers, sizes that overflow, a root or peer
/// outside 0 .. ranks - 1, unknown types or operators.
void validate(const Call& call, std::uint32_t rank, std::uint32_t ranks, const std::string& communicator);

}  // namespace tugline::comm

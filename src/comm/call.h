// SPDX-License-Identifier: Apache-2.0
// One call of a user, checked and described.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/layout.h"
#include "core/plan/plan.h"
#include "tugline/types.h"

namespace tugline::comm {

/// Counts of a collective whose blocks differ in size, in elements, by rank.
struct Counts {
  std::vector<std::size_t>
      send;  ///< all_to_all_v: to each rank; all_gather_v, reduce_scatter_v: of each block
  // Of all_to_all_v alone:
  std::vector<std::size_t> send_displacements;
  std::vector<std::size_t> recv;  ///< from each rank
  std::vector<std::size_t> recv_displacements;

  bool of_pairs() const noexcept { return !recv.empty(); }
  friend bool operator==(const Counts&, const Counts&) = default;
};

/// Arguments of one collective or message.
struct Call {
  core::Collective collective = core::Collective::barrier;
  const void* send = nullptr;  ///< null in a pure receive
  void* recv = nullptr;        ///< null in a pure send
  std::size_t count = 0;
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  std::optional<Reduction> factor;  ///< of a pre-multiplied sum; each rank's own business
  std::int32_t root = 0;            ///< of a rooted collective; send_recv: the peer
  enum class Direction : std::uint8_t { none, send, receive };
  Direction direction = Direction::none;  ///< of a message
  bool of_split = false;                  ///< the all_gather by which split() exchanges its arguments
  std::uint64_t generation = 0;           ///< epoch the call was made in
  std::shared_ptr<const Counts> counts;   ///< with blocks of different sizes; then `count` is their sum

  bool is_message() const noexcept { return collective == core::Collective::send_recv; }
  bool is_send() const noexcept { return direction == Direction::send; }
  bool reduces() const noexcept { return core::reduces(collective); }
  bool has_root() const noexcept { return core::has_root(collective); }
  /// Whether this rank passes an input, and takes an output.
  bool needs_send(std::uint32_t rank) const noexcept;
  bool needs_recv(std::uint32_t rank) const noexcept;
  /// core::Plan::bytes of this call.
  std::uint64_t bytes() const noexcept { return static_cast<std::uint64_t>(count) * size_of(type); }
  /// Bytes from the start of a rank's input (output) to the end of what is read (written) there.
  std::uint64_t input_bytes(std::uint32_t rank, std::uint32_t ranks) const noexcept;
  std::uint64_t output_bytes(std::uint32_t rank, std::uint32_t ranks) const noexcept;
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

/// The factor as an element of the type in which `call.type` is multiplied (f32 for f16 and bf16), in the low
/// bytes; none when the type cannot hold it.
std::optional<std::uint64_t> factor_bits(const Call& call) noexcept;
/// What must be equal on all ranks.
Descriptor describe(const Call& call) noexcept;
/// For a message: one count in which two calls of equal collective and type differ. `mine` of all_gather_v
/// and reduce_scatter_v: of block `peer`; of all_to_all_v: what this rank sends to `peer` or expects from it.
enum class CountOf : std::uint8_t { block = 1, sent, expected };
Descriptor with_count(const Descriptor& descriptor, CountOf what, std::uint32_t peer,
                      std::uint64_t count) noexcept;
/// Mixes (from, to, count): equal sums over all pairs mean that what is sent is what is expected.
std::uint64_t hash_of_pair(std::uint32_t from, std::uint32_t to, std::uint64_t count) noexcept;
/// 32 bits of it, to travel in packet flags.
inline std::uint32_t fingerprint(const Descriptor& descriptor) noexcept {
  std::uint64_t mixed =
      descriptor.kind * 0x9e3779b97f4a7c15u ^ (descriptor.count + 0x632be59bd9b4e019u) * 0xd6e8feb86659fd93u;
  return static_cast<std::uint32_t>((mixed ^ mixed >> 32) & 0xffffffffu);
}
/// "all_reduce(count 8, f32, sum)", for messages; a message by the name of the call that its side made.
std::string to_text(const Descriptor& descriptor, Call::Direction direction = Call::Direction::none);

/// Throws Error{invalid_argument} for null or partly overlapping buffers, sizes that overflow, a root or peer
/// outside 0 .. ranks - 1, unknown types or operators.
void validate(const Call& call, std::uint32_t rank, std::uint32_t ranks, const std::string& communicator);

}  // namespace tugline::comm

// SPDX-License-Identifier: Apache-2.0
// Ranks at each other's buffers. When a direct operation fails at one rank (a peer has died, somebody has
// aborted), another one may still be at work in it: an agreement about the dead does not wait for those who
// compute. The buffers are the caller's as soon as the call has returned: it writes there, or frees them. So
// a call that ends early withdraws its buffers, and waits for those who are at them; who comes later keeps
// off. Who has died is waited for until its process can run its code no more: a notice of its death may come
// before its last store.
//
// Who visits says so, then looks whether the owner has withdrawn; who withdraws says so, then looks whether
// somebody visits. All four are sequentially consistent, so one of the two sees the other (Dekker 1965).
#pragma once

#include <cstdint>
#include <span>

#include "comm/call.h"
#include "comm/epoch.h"
#include "tugline/function_ref.h"

namespace tugline::comm {

/// Buffers of one rank.
struct Buffers {
  std::byte* send = nullptr;
  std::byte* recv = nullptr;
};
inline Buffers buffers_of(const Call& call) noexcept {
  return {static_cast<std::byte*>(const_cast<void*>(call.send)), static_cast<std::byte*>(call.recv)};
}

/// This rank at the buffers of all in operation `sequence`.
class Visits {
 public:
  /// `buffers` by rank; they and `epoch` outlive this. Every rank has offered.
  Visits(const Epoch& epoch, std::uint64_t sequence, std::span<const Buffers> buffers) noexcept;

  /// Before it touches any: false when a rank has withdrawn its buffers, for ever then.
  bool begin() noexcept;
  /// After it has touched them; nothing if it was not there. Waiting in between would make others wait.
  void end() noexcept;
  /// The operation is done: what others have written here is seen.
  void finish() noexcept;
  /// The rank that has withdrawn; -1: none that was seen.
  std::int32_t withdrawn() const noexcept { return withdrawn_; }

 private:
  const Epoch& epoch_;
  std::uint64_t sequence_;
  std::span<const Buffers> buffers_;
  bool there_ = false;
  std::int32_t withdrawn_ = -1;
};

/// The same at the one buffer of a message's sender: begins with construction and ends with destruction.
class Visit {
 public:
  /// `visiting` is this rank's word, `withdrawn` the owner's, both of the pair; they outlive this.
  Visit(std::atomic<std::uint64_t>& visiting, const std::atomic<std::uint64_t>& withdrawn,
        std::uint64_t sequence, const std::byte* buffer) noexcept;
  ~Visit();
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;
  /// False when the owner has withdrawn the buffer: it must not be touched.
  explicit operator bool() const noexcept { return allowed_; }

 private:
  std::atomic<std::uint64_t>& visiting_;
  const std::byte* buffer_;
  bool allowed_;
};

/// This rank offers its buffers.
void offer_buffers(const Buffers& buffers) noexcept;
/// They are its own again: everybody else is done with them.
void take_back_buffers(const Buffers& buffers) noexcept;
/// This rank, which has offered them, ends operation `sequence` early. Returns when nobody is at its buffers,
/// nor will be. `may_store(rank)`: false once that rank's process can store nothing more. A stopped process
/// in the middle of a copy holds this up, and is reported.
void withdraw_buffers(const Epoch& epoch, std::uint64_t sequence, const Buffers& buffers,
                      FunctionRef<bool(std::uint32_t)> may_store) noexcept;

/// A message's sender and its buffer.
struct OwnedBuffer {
  const void* buffer = nullptr;
  std::uint32_t owner = 0;    ///< this rank
  std::uint32_t visitor = 0;  ///< the receiver
};
/// The same for the buffer of a message that ends early, see Visit.
void withdraw_buffer(std::atomic<std::uint64_t>& withdrawn, const std::atomic<std::uint64_t>& visiting,
                     std::uint64_t sequence, const OwnedBuffer& buffer,
                     FunctionRef<bool(std::uint32_t)> may_store) noexcept;

}  // namespace tugline::comm

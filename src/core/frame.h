// SPDX-License-Identifier: Apache-2.0
// Frame codec of the broker's protocol: fixed little-endian frames of at most 4 KiB, one per SEQPACKET
// message. Pure; never throws on bad input, never reads or writes outside the given bytes.
//
//   offset  0  u32 magic "TUGL"      4  u16 protocol version   6  u16 message type
//           8  u32 request number   12  u32 body bytes         16  body
//
// The header and the body of `Failure` keep their layout in all versions, so that both sides can say which
// versions met.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace tugline::core {

inline constexpr std::uint32_t kFrameMagic = 0x4c475554;  // "TUGL"
inline constexpr std::uint16_t kFrameVersion = 2;
inline constexpr std::size_t kMaxFrameBytes = 4096;
inline constexpr std::size_t kFrameHeaderBytes = 16;

/// Why bytes are not a frame.
enum class FrameFault : std::uint8_t {
  none,
  too_short,    ///< no whole header
  too_long,     ///< more than kMaxFrameBytes
  magic,        ///< not this protocol
  version,      ///< this protocol in another version; type, request and version are filled in
  body_length,  ///< the header's length is not the message's
};

/// A frame seen in somebody's buffer: valid as long as that buffer is.
struct FrameView {
  std::uint16_t version = 0;
  std::uint16_t type = 0;
  std::uint32_t request = 0;  ///< chosen by the client, repeated in the reply; 0: no reply wanted
  std::span<const std::byte> body;
};

/// Splits one message into header and body. `out` is meaningful for `none` and `version` only.
FrameFault parse_frame(std::span<const std::byte> bytes, FrameView& out) noexcept;

/// Writes numbers and texts into a frame; overflow is remembered, not written.
class FrameWriter {
 public:
  void begin(std::uint16_t type, std::uint32_t request, std::uint16_t version = kFrameVersion) noexcept;
  /// Completes the header. False when the body did not fit or a text was too long; then nothing may be sent.
  bool finish() noexcept;
  std::span<const std::byte> bytes() const noexcept { return {buffer_.data(), used_}; }

  template <class T>
  void number(const T& value) noexcept {
    static_assert(std::is_integral_v<T>);
    auto bits = static_cast<std::make_unsigned_t<T>>(value);
    if (!room(sizeof(T))) return;
    for (std::size_t i = 0; i < sizeof(T); ++i)
      buffer_[used_++] = static_cast<std::byte>(static_cast<std::uint64_t>(bits) >> (8 * i));
  }
  /// A number that must not exceed `largest` (flags, enumerations).
  template <class T>
  void bounded(const T& value, T largest) noexcept {
    if (value > largest) failed_ = true;
    number(value);
  }
  template <std::size_t N>
  void block(const std::array<std::uint8_t, N>& value) noexcept {
    if (!room(N)) return;
    std::memcpy(buffer_.data() + used_, value.data(), N);
    used_ += N;
  }
  /// Length as u16, then the bytes. Longer than `max_bytes` fails.
  void text(const std::string& value, std::size_t max_bytes) noexcept;

 private:
  bool room(std::size_t bytes) noexcept {
    if (bytes > kMaxFrameBytes - used_) failed_ = true;
    return !failed_;
  }

  std::array<std::byte, kMaxFrameBytes> buffer_;
  std::size_t used_ = 0;
  bool failed_ = false;
};

/// Reads what FrameWriter wrote. After the first failure every read leaves its value alone.
class FrameReader {
 public:
  explicit FrameReader(std::span<const std::byte> body) noexcept : rest_(body) {}
  /// True when everything was there, in bounds, and nothing is left over.
  bool finish() const noexcept { return !failed_ && rest_.empty(); }

  template <class T>
  void number(T& value) noexcept {
    static_assert(std::is_integral_v<T>);
    std::span<const std::byte> bytes;
    if (!take(sizeof(T), bytes)) return;
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) bits |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
    value = static_cast<T>(bits);
  }
  template <class T>
  void bounded(T& value, T largest) noexcept {
    T read{};
    number(read);
    if (read > largest) failed_ = true;
    if (!failed_) value = read;
  }
  template <std::size_t N>
  void block(std::array<std::uint8_t, N>& value) noexcept {
    std::span<const std::byte> bytes;
    if (take(N, bytes)) std::memcpy(value.data(), bytes.data(), N);
  }
  void text(std::string& value, std::size_t max_bytes);

 private:
  bool take(std::size_t bytes, std::span<const std::byte>& out) noexcept {
    if (bytes > rest_.size()) failed_ = true;
    if (failed_) return false;
    out = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return true;
  }

  std::span<const std::byte> rest_;
  bool failed_ = false;
};

}  // namespace tugline::core

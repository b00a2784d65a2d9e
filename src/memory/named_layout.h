// SPDX-License-Identifier: Apache-2.0
// What stands in the segment of a named buffer: one page of header, then one or two copies of the elements,
// each on a page boundary. All words are 0 in a fresh segment, which is a buffer of version 0 that nobody has
// shaped, published or written.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "broker/client.h"
#include "core/control.h"

namespace tugline::memory {

inline constexpr std::uint64_t kNamedPageBytes = 4096;
inline constexpr std::uint64_t kNamedMagic = 0x5b;
inline constexpr std::uint64_t kNamedLayoutVersion = 1;
/// Elements of one copy, so that a shape fits its word.
inline constexpr std::uint64_t kMaxNamedBytes = (std::uint64_t{1} << 47) - 1;
inline constexpr std::uint64_t kMaxVersion = (std::uint64_t{1} << 63) - 1;

/// Said once by whoever comes first; the others compare.
struct Shape {
  std::uint64_t bytes = 0;  ///< of one copy
  int copies = 0;
  std::uint64_t magic = kNamedMagic;
  std::uint64_t layout = kNamedLayoutVersion;

  constexpr std::uint64_t encode() const noexcept {
    return magic << 56 | layout << 49 | static_cast<std::uint64_t>(copies - 1) << 48 | bytes;
  }
  static constexpr Shape decode(std::uint64_t word) noexcept {
    return {word & ((std::uint64_t{1} << 48) - 1), static_cast<int>(word >> 48 & 1) + 1, word >> 56,
            word >> 49 & 0x7f};
  }
  constexpr std::uint64_t copy_offset(int copy) const noexcept {
    const auto pages = (bytes + kNamedPageBytes - 1) / kNamedPageBytes;
    return kNamedPageBytes * (1 + pages * static_cast<std::uint64_t>(copy));
  }
  constexpr std::uint64_t segment_bytes() const noexcept { return copy_offset(copies); }
};

/// A member for all time of a broker: slots are given again, and each generation of a job has new ones.
struct MemberIdentity {
  std::uint32_t generation = 0;
  std::uint16_t member = 0;
  std::uint16_t incarnation = 0;

  /// 0 is nobody: generations count from 1.
  constexpr std::uint64_t encode() const noexcept {
    return std::uint64_t{generation} << 32 | std::uint64_t{member} << 16 | incarnation;
  }
  static constexpr MemberIdentity decode(std::uint64_t word) noexcept {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint16_t>(word >> 16),
            static_cast<std::uint16_t>(word)};
  }
  friend constexpr bool operator==(const MemberIdentity&, const MemberIdentity&) = default;
};

struct NamedHeader {
  std::atomic<std::uint64_t> shape;
  /// version << 1 | copy that holds it. Release store by the writer: who sees the version sees the elements.
  std::atomic<std::uint64_t> published;
  std::atomic<std::uint64_t> writer;  ///< MemberIdentity of the one who may write
  /// With one copy: MemberIdentity of the one who began to write into it after the last publication; 0 once
  /// it has published. If that member is gone, the elements are torn; a later writer leaves the word as it
  /// is until it publishes.
  std::atomic<std::uint64_t> dirty;
};
static_assert(sizeof(NamedHeader) <= kNamedPageBytes);
static_assert(std::is_standard_layout_v<NamedHeader>);

}  // namespace tugline::memory

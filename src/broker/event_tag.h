// SPDX-License-Identifier: Apache-2.0
// What an epoll event of the broker's loop belongs to: kind and number in one word. Numbers of connections
// are never reused, so an event that outlived its connection finds nothing.
#pragma once

#include <cstdint>

namespace tugline::broker {

enum class EventKind : std::uint8_t { listener, connection, member_process, owner, stop };

constexpr std::uint64_t tag_of(EventKind kind, std::uint64_t number) noexcept {
  return static_cast<std::uint64_t>(kind) << 56 | number;
}
constexpr EventKind kind_of(std::uint64_t tag) noexcept {
  return static_cast<EventKind>(tag >> 56);
}
constexpr std::uint64_t number_of(std::uint64_t tag) noexcept {
  return tag & ((std::uint64_t{1} << 56) - 1);
}

}  // namespace tugline::broker

// SPDX-License-Identifier: Apache-2.0
// How many bytes this process has allocated and not freed, to the byte: what lies free in an allocator's
// caches does not count.
#pragma once

#include <cstdint>

namespace tugline::soak {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

std::uint64_t heap_bytes() noexcept;
/// Gives memory that the allocator holds free back to the system.
void trim_heap() noexcept;

}  // namespace tugline::soak

// SPDX-License-Identifier: Apache-2.0
// Non-temporal stores: results that are larger than a core's caches go to memory without being fetched first.
#pragma once

#include <cstdint>

namespace tugline::comm {

/// Results of this size and more are streamed: they do not stay in the second-level cache anyway.
std::uint64_t stream_from_bytes() noexcept;
/// Orders what this thread has streamed (StreamKernel) before its later stores. Whoever tells another thread
/// of a streamed result calls it before.
void stream_fence() noexcept;

}  // namespace tugline::comm

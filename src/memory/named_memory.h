// SPDX-License-Identifier: Apache-2.0
// Named buffers: found by name, published in versions, alive as long as the broker.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "broker/client.h"
#include "tugline/buffer.h"

namespace tugline::memory {

/// Opens the named buffer or makes it, with `bytes` per copy. Its pages are resident afterwards, charged to
/// the process that made them so. Throws Error{invalid_argument} for an empty name, 0 bytes, or copies other
/// than 1 and 2, Error{mismatch} when it exists with other bytes or copies, Error{protocol} when the segment
/// is no named buffer of this build, Error{out_of_memory}, Error{broker_lost}.
///
/// The result is thread-safe as to version(), torn() and current(); next() and publish() are for one thread
/// at a time. Its memory cannot be written before the first next() (a guard against mistakes).
std::shared_ptr<NamedMemory> open_named(std::shared_ptr<broker::Client> client, std::string_view name,
                                        std::size_t bytes, const NamedBufferOptions& options);

}  // namespace tugline::memory

// SPDX-License-Identifier: Apache-2.0
// Private pages exchanged for shared ones in place, and back: addresses and contents stay.
//
// Another process can reach only memory that a descriptor stands for, so pages that are to be shared must
// become those of a memfd. Piece by piece, new memory is mapped elsewhere, filled, and moved over the old by
// one mremap(). So at every moment the range holds its contents: it may be read meanwhile, and an error
// leaves it whole; what others write meanwhile may be lost. Only one piece is there twice.
//
// Locked pages (mlock) stay locked. Other advice (madvise, mbind) is lost, and the new pages lie on the NUMA
// node of the calling thread.
#pragma once

#include <cstdint>

namespace tugline::base {

/// Makes [address, address + bytes), whole pages of private memory, the first `bytes` of `memfd`. Throws
/// Error{out_of_memory}; then the range is private again, or (which is logged) partly shared where memory is
/// too short for that too.
void exchange_for_shared(void* address, std::uint64_t bytes, int memfd);

/// The way back, to private anonymous memory. The pages of `memfd` are freed: who has it mapped reads zeros.
/// Throws Error{out_of_memory}; then the rest of the range is still shared.
void exchange_for_private(void* address, std::uint64_t bytes, int memfd);

}  // namespace tugline::base

// SPDX-License-Identifier: Apache-2.0
// Element-wise kernels of the host executor, chosen once per process by what the processor can do.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tugline/types.h"

namespace tugline::comm {

/// destination[i] = ((operands[0][i] op operands[1][i]) op operands[2][i]) ..., at least two operands. The
/// destination may be the same as one or several operands, but not overlap otherwise. f16 and bf16 are
/// combined in f32 and rounded to nearest even once, at the end. Integers wrap. min and max of floats are NaN
/// if an operand is.
using ReduceKernel = void (*)(void* destination, const void* const* operands, std::size_t operand_count,
                              std::size_t count);
/// The sum divided by `divisor`: f16 and bf16 are divided in f32, before they are rounded, so that an average
/// is a number wherever it fits the type.
using AverageKernel = void (*)(void* destination, const void* const* operands, std::size_t operand_count,
                               std::size_t count, std::uint64_t divisor);
/// destination[i] /= divisor; integers round toward zero.
using ScaleKernel = void (*)(void* destination, std::size_t count, std::uint64_t divisor);
/// destination[i] = source[i] * factor, an element in the low bytes of `factor` (f16, bf16: an f32); the
/// destination may be the source. Integers wrap.
using MultiplyKernel = void (*)(void* destination, const void* source, std::size_t count,
                                std::uint64_t factor);
/// Copies `bytes` that do not overlap past the caches, where the processor can: see stream.h.
using StreamKernel = void (*)(void* destination, const void* source, std::size_t bytes);

/// The kernel for a type and operator; avg is summed here, as partial results are.
ReduceKernel reduce_kernel(DataType type, ReduceOp op) noexcept;
/// The kernel that makes an average of all operands.
AverageKernel average_kernel(DataType type) noexcept;
ScaleKernel scale_kernel(DataType type) noexcept;
MultiplyKernel multiply_kernel(DataType type) noexcept;
StreamKernel stream_kernel() noexcept;
/// "avx512", "avx2" or "baseline": the instruction set in use.
const char* kernel_variant() noexcept;

/// One instruction set's kernels; index by type and operator.
struct KernelTable {
  const char* name;
  ReduceKernel reduce[kDataTypeCount][4];  ///< sum, prod, min, max
  AverageKernel average[kDataTypeCount];
  ScaleKernel scale[kDataTypeCount];
  MultiplyKernel multiply[kDataTypeCount];
  StreamKernel stream;
};
/// Tables of all instruction sets this build has, baseline first; for tests. `count` gets their number; only
/// those the processor can run are listed.
const KernelTable* const* kernel_tables(std::size_t& count) noexcept;

}  // namespace tugline::comm

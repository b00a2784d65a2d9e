// SPDX-License-Identifier: Apache-2.0
#include "comm/kernels_host/reduce.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tugline::comm {

extern const KernelTable kBaselineKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
#endif

namespace {

#if defined(__x86_64__)
/// clang 14 does not know this feature by name.
bool has_f16c() noexcept {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

struct Available {
  const KernelTable* tables[3];
  std::size_t count = 0;

  Available() noexcept {
    tables[count++] = &kBaselineKernels;
#if defined(__x86_64__)
    // The same features as the -march levels the variants are built for.
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() &&
        __builtin_cpu_supports("bmi2")) {
      tables[count++] = &kAvx2Kernels;
      if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
          __builtin_cpu_supports("avx512cd"))
        tables[count++] = &kAvx512Kernels;
    }
#endif
  }
};

const Available& available() noexcept {
  static const Available kAvailable;
  return kAvailable;
}

const KernelTable& best() noexcept {
  return *available().tables[available().count - 1];
}

}  // namespace

ReduceKernel reduce_kernel(DataType type, ReduceOp op) noexcept {
  const auto column = op == ReduceOp::avg ? ReduceOp::sum : op;
  return best().reduce[static_cast<std::size_t>(type)][static_cast<std::size_t>(column)];
}

AverageKernel average_kernel(DataType type) noexcept {
  return best().average[static_cast<std::size_t>(type)];
}

ScaleKernel scale_kernel(DataType type) noexcept {
  return best().scale[static_cast<std::size_t>(type)];
}

MultiplyKernel multiply_kernel(DataType type) noexcept {
  return best().multiply[static_cast<std::size_t>(type)];
}

StreamKernel stream_kernel() noexcept {
  return best().stream;
}

const char* kernel_variant() noexcept {
  return best().name;
}

const KernelTable* const* kernel_tables(std::size_t& count) noexcept {
  count = available().count;
  return available().tables;
}

}  // namespace tugline::comm

// SPDX-License-Identifier: Apache-2.0
#include "comm/kernels_host/reduce.h"

namespace tugline::comm {

extern const KernelTable kBaselineKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
#endif

namespace {

struct Available {
  const KernelTable* tables[3];
  std::size_t count = 0;

  Available() noexcept {
    tables[count++] = &kBaselineKernels;
#if defined(__x86_64__)
    // The same features as the -march levels the variants are built for.
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
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
  static const Available instance;
  return instance;
}

const KernelTable& best() noexcept {
  return *available().tables[available().count - 1];
}

}  // namespace

ReduceKernel reduce_kernel(DataType type, ReduceOp op) noexcept {
  const auto column = op == ReduceOp::avg ? ReduceOp::sum : op;
  return best().reduce[static_cast<std::size_t>(type)][static_cast<std::size_t>(column)];
}

ScaleKernel scale_kernel(DataType type) noexcept {
  return best().scale[static_cast<std::size_t>(type)];
}

const char* kernel_variant() noexcept {
  return best().name;
}

const KernelTable* const* kernel_tables(std::size_t& count) noexcept {
  count = available().count;
  return available().tables;
}

}  // namespace tugline::comm

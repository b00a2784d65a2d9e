// SPDX-License-Identifier: Apache-2.0
// Matrix products by OpenBLAS, in row-major order, for float and (gradient checks) double.
#pragma once

namespace train_fashion {

/// How an operand is read.
enum class Operand { plain, transposed };

/// One thread per rank: ranks are the parallelism here, and the same product gives the same bits on any
/// cores. Several threads would cut it by their number and round differently. Call once, before the first
/// product.
void use_one_blas_thread();

/// c[m x n] = a[m x k] * b[k x n] + beta * c, each row `ld` elements after the one before.
void gemm(Operand a_form, Operand b_form, int m, int n, int k, const float* a, int lda, const float* b,
          int ldb, float beta, float* c, int ldc);
void gemm(Operand a_form, Operand b_form, int m, int n, int k, const double* a, int lda, const double* b,
          int ldb, double beta, double* c, int ldc);

}  // namespace train_fashion

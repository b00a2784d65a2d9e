// SPDX-License-Identifier: Apache-2.0
#include "blas.h"

#include <cblas.h>

namespace train_fashion {
namespace {

CBLAS_TRANSPOSE cblas_form(Operand form) {
  return form == Operand::plain ? CblasNoTrans : CblasTrans;
}

}  // namespace

void use_one_blas_thread() {
  openblas_set_num_threads(1);
}

void gemm(Operand a_form, Operand b_form, int m, int n, int k, const float* a, int lda, const float* b,
          int ldb, float beta, float* c, int ldc) {
  cblas_sgemm(CblasRowMajor, cblas_form(a_form), cblas_form(b_form), m, n, k, 1.0F, a, lda, b, ldb, beta, c,
              ldc);
}

void gemm(Operand a_form, Operand b_form, int m, int n, int k, const double* a, int lda, const double* b,
          int ldb, double beta, double* c, int ldc) {
  cblas_dgemm(CblasRowMajor, cblas_form(a_form), cblas_form(b_form), m, n, k, 1.0, a, lda, b, ldb, beta, c,
              ldc);
}

}  // namespace train_fashion

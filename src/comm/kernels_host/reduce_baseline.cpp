// SPDX-License-Identifier: Apache-2.0
#define TUGLINE_VARIANT kBaselineKernels
#define TUGLINE_VARIANT_NAME "baseline"
#include "comm/kernels_host/variant.h"

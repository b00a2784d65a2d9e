// SPDX-License-Identifier: Apache-2.0
#define TUGLINE_VARIANT kAvx2Kernels
#define TUGLINE_VARIANT_NAME "avx2"
#include "comm/kernels_host/variant.h"

// SPDX-License-Identifier: Apache-2.0
#define TUGLINE_VARIANT kAvx512Kernels
#define TUGLINE_VARIANT_NAME "avx512"
#include "comm/kernels_host/variant.h"

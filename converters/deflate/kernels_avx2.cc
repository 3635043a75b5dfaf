// SPDX-License-Identifier: Apache-2.0
#define WFLOW_DEFLATE_KERNELS avx2_deflate_kernels
#define WFLOW_DEFLATE_NAME "avx2"
#include "converters/deflate/kernels.inc"

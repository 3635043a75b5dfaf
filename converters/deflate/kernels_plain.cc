// SPDX-License-Identifier: Apache-2.0
#define WFLOW_DEFLATE_KERNELS plain_deflate_kernels
#define WFLOW_DEFLATE_NAME "plain"
#include "converters/deflate/kernels.inc"

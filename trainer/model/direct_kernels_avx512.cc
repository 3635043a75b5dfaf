// SPDX-License-Identifier: Apache-2.0
#define WFLOW_KERNELS avx512_kernels
#include "trainer/model/direct_kernels.inc"

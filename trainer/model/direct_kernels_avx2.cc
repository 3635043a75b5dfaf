// SPDX-License-Identifier: Apache-2.0
#define WFLOW_KERNELS avx2_kernels
#include "trainer/model/direct_kernels.inc"

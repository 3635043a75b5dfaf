// SPDX-License-Identifier: Apache-2.0
#define WFLOW_KERNELS avx2_kernels
#define WFLOW_BLOCKED_KERNELS avx2_blocked_kernels
#include "trainer/model/direct_kernels.inc"
// The kernels for blocked layouts use definitions of the first file.
#include "trainer/model/blocked_kernels.inc"

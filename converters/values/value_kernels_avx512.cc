// SPDX-License-Identifier: Apache-2.0
#define WFLOW_X86_VALUES
#define WFLOW_VALUE_KERNELS avx512_value_kernels
#include "converters/values/value_kernels.inc"

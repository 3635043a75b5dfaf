// SPDX-License-Identifier: Apache-2.0
#define WFLOW_VALUE_KERNELS plain_value_kernels
#include "converters/values/value_kernels.inc"

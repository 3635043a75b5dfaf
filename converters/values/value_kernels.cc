// SPDX-License-Identifier: Apache-2.0
#include "converters/values/value_kernels.h"

#include <cstdlib>
#include <string_view>

namespace wflow::converters {

namespace {

const ValueKernels& choose_value_kernels() {
#ifdef WFLOW_X86_VALUES
  const char* given = std::getenv("WFLOW_VALUES");
  const std::string_view wish = given == nullptr ? "" : given;
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (wide && wish != "avx2" && wish != "plain") return avx512_value_kernels;
  if (__builtin_cpu_supports("avx2") && wish != "plain") return avx2_value_kernels;
#endif
  return plain_value_kernels;
}

}  // namespace

const ValueKernels& value_kernels() {
  static const ValueKernels& chosen = choose_value_kernels();
  return chosen;
}

}  // namespace wflow::converters

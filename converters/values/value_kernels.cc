// SPDX-License-Identifier: Apache-2.0
#include "converters/values/value_kernels.h"

#include <cstdlib>
#include <string_view>

namespace wflow::converters {

namespace {

const ValueKernels& choose_value_kernels() {
#ifdef WFLOW_X86_VALUES
  const char* wish = std::getenv("WFLOW_VALUES");
  const bool wanted = wish == nullptr || std::string_view(wish) != "plain";
  if (wanted && __builtin_cpu_supports("avx2")) return avx2_value_kernels;
#endif
  return plain_value_kernels;
}

}  // namespace

const ValueKernels& value_kernels() {
  static const ValueKernels& chosen = choose_value_kernels();
  return chosen;
}

}  // namespace wflow::converters

// SPDX-License-Identifier: Apache-2.0
#include "converters/deflate/kernels.h"

#include <cstdlib>
#include <string_view>

#include "converters/deflate/field_deflate.h"

namespace wflow::converters {

extern const DeflateKernels plain_deflate_kernels;
#ifdef WFLOW_X86_DEFLATE
extern const DeflateKernels avx2_deflate_kernels;
extern const DeflateKernels portable_deflate_kernels;
#endif

namespace {

const DeflateKernels& choose_kernels() {
#ifdef WFLOW_X86_DEFLATE
  const char* variable = std::getenv("WFLOW_DEFLATE");
  const std::string_view wish = variable == nullptr ? "" : variable;
  if (wish == "portable") return portable_deflate_kernels;
  if (wish != "plain" && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
      __builtin_cpu_supports("bmi2"))
    return avx2_deflate_kernels;
#endif
  return plain_deflate_kernels;
}

}  // namespace

const DeflateKernels& deflate_kernels() {
  static const DeflateKernels& chosen = choose_kernels();
  return chosen;
}

const char* deflate_kernels_name() {
  return deflate_kernels().name;
}

}  // namespace wflow::converters

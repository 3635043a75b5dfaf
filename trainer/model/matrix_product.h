// SPDX-License-Identifier: Apache-2.0
// Matrix products by oneDNN, which generates code for the processor: OpenBLAS 0.3.21 uses AVX2 kernels on
// AVX-512 processors that are newer than itself, at 0.4 of the speed; the reference BLAS has a hundredth.
#pragma once

#include <cstdint>

namespace wflow::trainer {

struct ProductSize {
  std::int64_t rows = 0;     // in the result
  std::int64_t columns = 0;  // in the result
  std::int64_t inner = 0;
};

// `a_by_column`, `b_by_column`: the factor is transposed. `add`: the product is added to the result.
struct Product {
  bool a_by_column = false;
  bool b_by_column = false;
  bool add = false;
};

// result = a b, all in rows without gaps.
void multiply(const ProductSize& size, const Product& how, const float* a, const float* b, float* result);

}  // namespace wflow::trainer

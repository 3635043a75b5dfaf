// SPDX-License-Identifier: Apache-2.0
// Matrix products by oneDNN.
#pragma once

#include <cstdint>

namespace wflow::trainer {

struct ProductSize {
  std::int64_t rows = 0;     // of the result
  std::int64_t columns = 0;  // of the result
  std::int64_t inner = 0;
};

// result = a b, all of them row by row without gaps; `a_by_column`, `b_by_column`: the factor lies
// transposed. `add`: on top of what the result holds.
struct Product {
  bool a_by_column = false;
  bool b_by_column = false;
  bool add = false;
};
void multiply(const ProductSize& size, const Product& how, const float* a, const float* b, float* result);

}  // namespace wflow::trainer

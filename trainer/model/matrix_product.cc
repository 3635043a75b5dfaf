// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/matrix_product.h"

#include <dnnl.h>

#include "base/error.h"

namespace wflow::trainer {

void multiply(const ProductSize& size, const Product& how, const float* a, const float* b, float* result) {
  const std::int64_t a_row = how.a_by_column ? size.rows : size.inner;
  const std::int64_t b_row = how.b_by_column ? size.inner : size.columns;
  const dnnl_status_t status =
      dnnl_sgemm(how.a_by_column ? 'T' : 'N', how.b_by_column ? 'T' : 'N', size.rows, size.columns,
                 size.inner, 1.0F, a, a_row, b, b_row, how.add ? 1.0F : 0.0F, result, size.columns);
  WFLOW_CHECK(status == dnnl_success);
}

}  // namespace wflow::trainer

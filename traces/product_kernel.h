// SPDX-License-Identifier: Apache-2.0
// The product of a matrix and a vector, for a network that is evaluated one draw at a time.
#pragma once

#include <cstddef>

namespace wflow::traces {

// y += W x. `matrix` is stored column by column: `rows` values of the first column, and so on. No overlap.
void plain_product(const float* matrix, const float* x, std::size_t columns, float* y, std::size_t rows);
#if defined(__x86_64__)
void avx2_product(const float* matrix, const float* x, std::size_t columns, float* y, std::size_t rows);
#endif

}  // namespace wflow::traces

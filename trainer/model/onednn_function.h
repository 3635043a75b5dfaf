// SPDX-License-Identifier: Apache-2.0
// A function of each value, such as tanh, by oneDNN's vector kernels. Includes nothing of oneDNN.
#pragma once

#include <cstdint>
#include <memory>

#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// True for relu, leaky_relu, elu, gelu, silu, sigmoid, tanh and softplus.
bool is_function(LayerKind kind);

class OnednnFunction {
 public:
  // `parameter`: Layer::value, the slope of leaky_relu. Requires is_function(kind).
  OnednnFunction(LayerKind kind, double parameter);
  ~OnednnFunction();
  OnednnFunction(const OnednnFunction&) = delete;
  OnednnFunction& operator=(const OnednnFunction&) = delete;

  // y[i] = f(x[i])
  void apply(std::int64_t count, const float* x, float* y);
  // dx[i] = dy[i] f'(x[i])
  void apply_slope(std::int64_t count, const float* x, const float* dy, float* dx);

 private:
  struct Kernels;
  std::unique_ptr<Kernels> kernels_;
};

// Matrix products by oneDNN, which generates code for the processor: OpenBLAS 0.3.21 uses AVX2 kernels on
// AVX-512 processors that are newer than itself, at 0.4 of the speed; the reference BLAS has a hundredth.

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

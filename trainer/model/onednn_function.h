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

}  // namespace wflow::trainer
